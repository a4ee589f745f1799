"""Malformed replies of a Flower client: the run continues, and the model is that of a round without this client."""

from __future__ import annotations

import copy
import logging
from functools import cache

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from fuzzing import bounded_memory, fuzzed
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, federation
from problems import BUSY, SIZES, classification

import fedmim
from fedmim.flower import FlowerStrategy, client_app

N, BAD = len(SIZES), 3
TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 1, "participation": 1.0, "weighting": "samples"})
METHODS = {"fedavg": fedmim.FedAvg(), "fedmim": fedmim.FedMIM(), "scaffold": fedmim.Scaffold()}
NUMBERS = [float("inf"), -float("inf"), float("nan"), -1, 0, 0.5, 1e300, 2**62, [1, 2], [], [float("nan")]]
HEADERS = [
    b"",
    b"\x93",
    b"PK\x03\x04" + bytes(60),
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(128),
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }".ljust(128),
    b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (5,), }".ljust(128),
    b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 200,
    b"\x93NUMPY\x01\x00\xff\x03" + b"(" * 1023,
    b"\x80\x04\x95",  # a pickle
]


class Replay(Loopback):
    """Nodes that answer with stored contents; that of the bad client is changed first."""

    def __init__(self, answers, change, kind):
        super().__init__(dict.fromkeys(range(N)))
        self.answers, self.change, self.kind = answers, change, kind

    def _deliver(self, message):
        kind, client = message.metadata.message_type, message.metadata.dst_node_id
        content = copy.deepcopy(self.answers[kind, client])
        if (kind, client) == (self.kind, BAD):
            return self.change(content, message)
        return Message(content, reply_to=message)


@cache
def answers(name):
    """The contents of all answers in the first round, from real clients."""
    app, found = client_app(lambda partition, context: TASK, METHODS[name], SETTINGS), {}

    def keep(message, answer):
        reply = answer()
        client = (1000 - message.metadata.dst_node_id) // 7
        found[message.metadata.message_type, client] = reply.content
        return reply

    grid = federation(app, N, PLACE, keep)
    FlowerStrategy(METHODS[name], TASK.model, SETTINGS, clients=N, wait=0.0).start(grid)
    return found


def run(name, change, kind="train"):
    """The model after a round, the strategy's failures, and whether all clients were there."""
    options = {"clients": N, "wait": 0.0, "min_available_nodes": N - 1, "client_state": "node"}
    strategy = FlowerStrategy(METHODS[name], TASK.model, SETTINGS, **options)
    with bounded_memory():
        result = strategy.start(Replay(answers(name), change, kind), timeout=0.01)
    model = result.arrays.to_torch_state_dict()
    return torch.cat([value.flatten() for value in model.values()]), strategy


@cache
def without(name, kind):
    """The model of a round in which the bad client raises an error."""
    model, _ = run(name, lambda content, message: Message(Error(2, "it raises"), reply_to=message), kind)
    return model


@pytest.fixture(autouse=True, scope="module")
def place(tmp_path_factory):
    global PLACE
    PLACE = tmp_path_factory.mktemp("disks")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("flwr").setLevel(logging.INFO)


@st.composite
def array_changes(draw, name):
    """Change the arrays of a reply."""
    kind = draw(
        st.sampled_from(["drop", "add", "shape", "dtype", "stype", "header", "cut", "longer", "object", "none"])
    )
    place, header, cut = draw(st.integers(0, 99)), draw(st.sampled_from(HEADERS)), draw(st.integers(1, 200))
    text = draw(st.text(max_size=20))

    def change(content, message):
        record = content["arrays"]
        key = list(record)[place % len(record)]
        array = record[key]
        if kind == "drop":
            del record[key]
        elif kind == "add":
            record[f"more{text}"] = array
        elif kind == "shape":
            record[key] = Array(np.zeros((2, *array.shape), "float32"))
        elif kind == "dtype":
            record[key] = Array(array.numpy().astype(["float64", "float16", "int64", "complex64"][place % 4]))
        elif kind == "stype":
            record[key] = Array(array.dtype, array.shape, text, array.data)
        elif kind == "header":
            record[key] = Array(text, array.shape, array.stype, header)
        elif kind == "cut":
            record[key] = Array(array.dtype, array.shape, array.stype, array.data[: -min(cut, len(array.data))])
        elif kind == "longer":
            record[key] = Array(array.dtype, array.shape, array.stype, array.data + bytes(cut))
        elif kind == "object":
            record[key] = Array("object", (1,), array.stype, header + b"\x80\x04K\x01.")
        else:
            content["arrays"] = ArrayRecord()
        return Message(content, reply_to=message)

    return change


@st.composite
def other_changes(draw, names):
    """Change the metrics or the records of a reply, or give none."""
    kind = draw(st.sampled_from(["number", "missing", "records", "rename", "error", "silence", "more"]))
    name, value = draw(st.sampled_from(names)), draw(st.sampled_from(NUMBERS))
    place, text = draw(st.integers(0, 99)), draw(st.text(max_size=30))

    def change(content, message):
        metrics = content["metrics"]
        if kind == "number":
            metrics[name] = value
        elif kind == "missing":
            del metrics[name]
        elif kind == "records":
            del content[list(content)[place % len(content)]]
        elif kind == "rename":
            content[f"x{text}"] = content.pop(list(content)[place % len(content)])
        elif kind == "error":
            return Message(Error(place, text), reply_to=message)
        elif kind == "silence":
            return None
        else:
            content["fedmim"] = ArrayRecord({f"more{text}": Array(np.zeros(3, "float32"))})
            content[text] = ConfigRecord({"x": 1}) if place % 2 else MetricRecord({"x": 1})
        return Message(content, reply_to=message)

    return change


@pytest.mark.parametrize("name", METHODS)
@fuzzed(60)
@given(data=st.data())
def test_a_malformed_reply_costs_its_client_and_nothing_else(name, data):
    # FedAvg does not need the number of steps: clients that know nothing of fedmim take part.
    changes = [array_changes(name), other_changes(["num-examples"] + ["steps"] * (name != "fedavg"))]
    change = data.draw(st.one_of(changes))
    model, strategy = run(name, change)
    assert torch.equal(model, without(name, "train"))
    assert strategy.failures
    assert len(strategy.history) == 1


@fuzzed(60)
@given(data=st.data())
def test_a_malformed_answer_to_the_roll_call_costs_its_client_and_nothing_else(data):
    change = data.draw(other_changes(["partition-id", "num-partitions", "num-examples"]))

    def changed(content, message):
        reply = change(content, message)
        fits = reply is not None and not reply.has_error() and reply.content.metric_records.get("metrics")
        # An app may also not know its partition. One that claims partition 0 waits behind the node that was first.
        if fits and fits.get("partition-id", BAD) == BAD:
            return Message(Error(2, "its answer is correct"), reply_to=message)
        return reply

    model, strategy = run("fedavg", changed, "query")
    assert torch.equal(model, without("fedavg", "query"))
    assert strategy.history[0].clients == tuple(client for client in range(N) if client != BAD)
