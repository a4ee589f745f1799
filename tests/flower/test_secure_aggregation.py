"""Flower's secure aggregation cannot be used with a current strategy, as docs/deploy.md says.

A test here that fails after an update of Flower means that the page can be changed.
"""

from __future__ import annotations

import flwr.clientapp.mod
import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common.secure_aggregation.quantization import quantize
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity


def test_the_workflow_rejects_the_context_of_a_current_server_app():
    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    with pytest.raises(TypeError, match="Expect a LegacyContext, but get Context"):
        workflow(None, Context(1, 1, {}, RecordDict(), {}))


def test_the_mod_is_not_among_those_of_the_current_interface():
    assert "secaggplus_mod" not in flwr.clientapp.mod.__all__


def test_the_mod_rejects_the_message_of_a_current_strategy():
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord({"server-round": 1})})

    def train(message, context):
        return Message(RecordDict({"arrays": ArrayRecord(), "metrics": MetricRecord()}), reply_to=message)

    with pytest.raises(KeyError, match="secaggplus"):
        secaggplus_mod(Message(content, 1, "train"), Context(1, 1, {}, RecordDict(), {}), train)


def test_values_are_clipped_to_eight_and_rounded_to_22_bits():
    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    assert workflow.clipping_range == 8.0
    assert workflow.quantization_range == 2**22
    (large, largest) = quantize([np.array([100.0]), np.array([8.0])], workflow.clipping_range, 2**22)
    assert large == largest == 2**22
