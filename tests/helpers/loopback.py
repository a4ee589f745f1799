"""A Flower grid within one process: messages are answered at once by ClientApps, with faults on demand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import fedmim


@dataclass
class LoopbackNode:
    """A node, with what it does to its replies."""

    app: ClientApp
    config: dict
    run_config: dict = field(default_factory=dict)
    state: RecordDict = field(default_factory=RecordDict)


class Loopback(Grid):
    """Nodes by id. `fault(message, answer)` gives the reply, by `answer()` or another, or None; or it raises."""

    def __init__(self, nodes: dict[int, LoopbackNode], fault: Callable | None = None) -> None:
        self.nodes = nodes
        self.fault = fault or (lambda message, answer: answer())
        self.sent: list[Message] = []
        self.replies: list[Message] = []
        self.waiting: dict[str, Message] = {}  # message -> its reply, until it is pulled
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def set_run(self, run) -> None:
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
            self.sent.append(message)
            reply = self._deliver(message)
            ids.append(message.metadata.message_id)
            if reply is not None:
                self.replies.append(reply)
                self.waiting[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.waiting.pop(each) for each in message_ids if each in self.waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message | None:
        node_id = message.metadata.dst_node_id
        node = self.nodes.get(node_id)
        if node is None:
            return Message(Error(5, "Node Unavailable"), reply_to=message)

        def answer() -> Message:
            context = Context(1, node_id, node.config, node.state, node.run_config)
            return node.app(message, context)

        try:
            return self.fault(message, answer)
        except Exception as error:  # as Flower does
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)


def federation(app: ClientApp, clients: int, folder, fault: Callable | None = None) -> Loopback:
    """A node for each client, its files below the folder; ids in another order than the clients."""
    configs = [
        {"partition-id": client, "num-partitions": clients, "state-dir": str(folder / f"disk-{client}")}
        for client in range(clients)
    ]
    return Loopback({1000 - 7 * c: LoopbackNode(app, config) for c, config in enumerate(configs)}, fault)


def run_simulator(algorithm, task, settings):
    """The records, and the global models after each round, of the simulator."""
    run = fedmim.rounds(algorithm, task, settings, fedmim.Execution(engine="serial"))
    records, models = [], []
    for record in run:
        records.append(record)
        models.append(run.model.state_dict())
    return records, models


def assert_same(models, expected):
    assert len(models) == len(expected) > 0
    for ours, theirs in zip(models, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert torch.equal(ours[name], theirs[name]), name
