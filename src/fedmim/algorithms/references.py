"""The reference runs of a comparison: one model trained on the data of all clients, and clients that train alone.

Neither is a federated method. The first shows what could be reached at most, the second what clients reach without
communication. Tables and figures do not rank them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, ServerState, Vectors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Centralised(Algorithm):
    """Reference: SGD on the pooled data of all clients, with as many steps per round.

        client   x <- x - eta g                                K times, from x_t; one client that holds all data
        server   x_{t+1} = x

    K = round(S/N sum_i K_i), the number of gradient steps of all clients of a round, on average over the rounds. Batch
    size, learning rate, weight decay and clipping are those of the settings. With batch_size none, a minibatch has as
    many samples as a client has on average. Nothing is sent. Settings of the federation have no effect: server_lr,
    weighting, aggregation, max_distance, min_replies, differential privacy, work, dropout, deadline, availability.

    The reference of McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    Section 3: SGD on the full training set.
    """

    title: ClassVar[str] = "Centralised"
    pooled: ClassVar[bool] = True


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Reference: each client trains a model of its own, without communication.

        client   w_i <- w_i - eta g                            K_i times, from its own model w_i; first from x_0
        server   x_{t+1} = x_0

    A client trains in the same rounds as in the federation, with the same minibatches. The accuracy of a round is the
    mean over its clients of the accuracy of each one's own model on the common test data. Nothing is sent. server_lr,
    aggregation, max_distance, min_replies and differential privacy have no effect.

    One of the references of Smith et al. 2017, "Federated Multi-Task Learning", NeurIPS.
    """

    title: ClassVar[str] = "Local only"
    client_slots: ClassVar[tuple[str, ...]] = ("model",)
    own_models: ClassVar[bool] = True

    def plan(self, local: Local) -> Plan:
        """SGD from the client's own model."""
        import torch

        x, own = local.down["params"], local.slots["model"]
        if isinstance(local.first, int | float):
            return Plan(start=x if local.first else own, rate=local.lr)
        return Plan(start=torch.where(local.first.bool(), x, own), rate=local.lr)

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """The client keeps its model. Engines need an upload; the server does not use it."""
        return {"params": w}, {"model": w}

    def update(self, state: ServerState, mean: Vectors, round: Round) -> ServerState:
        """The server's model stays the initial one."""
        return state
