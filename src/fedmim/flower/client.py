"""client_app: a Flower ClientApp for all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedmim.algorithms import Algorithm
from fedmim.errors import UserError
from fedmim.flower.evaluation import evaluate_arrays
from fedmim.flower.history import listen
from fedmim.flower.incoming import Incoming, unpack_from_server
from fedmim.flower.messages import ARRAYS, METRICS, LackingError, Order, reply_to
from fedmim.flower.node import Node, state_dir
from fedmim.flower.state_dict import StateDict
from fedmim.flower.store import NodeStore
from fedmim.models import FlatModel
from fedmim.models.flat import flat_buffers
from fedmim.simulation.engines import serial
from fedmim.simulation.past_models import PastModels
from fedmim.simulation.settings import Settings
from fedmim.simulation.task import Task
from fedmim.simulation.training import Work
from fedmim.structure import length

TaskForPartition: TypeAlias = Callable[[int, Context], Task]


def client_app(
    task_for_partition: TaskForPartition,
    algorithm: Algorithm | Callable[[Context], Algorithm],
    settings: Settings | Callable[[Context], Settings],
    *,
    device: str = "cpu",
    mods: list[Mod] | None = None,
) -> ClientApp:
    """A Flower ClientApp that trains and evaluates on its partition, for a server with `FlowerStrategy`.

    `task_for_partition(partition, context)` returns the client's `fedmim.Task`, either with only its own data,
    `Task(model, clients=[(x, y)], test=...)`, or with the data of all partitions, from which the client takes its own.
    `algorithm` and `settings` must equal the server's. They may be functions of Flower's context, for example to read
    `context.run_config`. `device` is the default; the node's or the run's configuration may name a different device.
    """
    app = ClientApp(mods=mods)

    def method(context: Context) -> Algorithm:
        return algorithm if isinstance(algorithm, Algorithm) else algorithm(context)

    def by_client(answer: Callable[[FlowerClient, Message], Message]) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            own = settings if isinstance(settings, Settings) else settings(context)
            node = Node.of(context, device)
            task = own_part(task_for_partition(node.partition, context), node)
            return answer(FlowerClient(method(context), own, node, task), message)

        return handle

    app.query()(by_client(FlowerClient.tell))
    app.train()(by_client(FlowerClient.train))
    app.evaluate()(by_client(FlowerClient.evaluate))

    @app.query("listen")
    def hear(message: Message, context: Context) -> Message:
        order = Order.of(message)
        task = task_for_partition(Node.of(context, device).partition, context)
        vectors, _, _ = unpack_from_server(StateDict(task.model), message)
        past = PastModels(method(context), order.agreed["history"])
        listen(past, vectors, store_of(order, context), order.round)
        return Message(RecordDict(), reply_to=message)

    @app.query("forget")
    def forget(message: Message, context: Context) -> Message:
        store_of(Order.of(message), context).forget()
        return Message(RecordDict(), reply_to=message)

    return app


@dataclass(frozen=True)
class FlowerClient:
    """The client of one partition, for one message."""

    algorithm: Algorithm
    settings: Settings
    node: Node
    task: Task  # with this client's data at its index

    def tell(self, message: Message) -> Message:
        """Report the partition of this client, its number of samples and its number of local steps."""
        node = self.node
        facts = {"partition-id": node.partition, "num-partitions": node.partitions, "num-examples": self._samples}
        return Message(RecordDict({METRICS: MetricRecord({**facts, "steps": self._steps})}), reply_to=message)

    def train(self, message: Message) -> Message:
        """One round of local training, with the simulator's code."""
        order = Order.of(message)
        order.check(self.algorithm, self.settings)
        if order.client != self.node.partition:
            raise UserError(f"partition-id: the server expects {order.client}, got {self.node.partition}")
        try:
            order.check_steps(self._steps)
            incoming = Incoming.of(
                message, order, self.node.state_dir, self.algorithm, self.task.model, self.node.device
            )
        except LackingError:
            return reply_to(message, {ARRAYS: ArrayRecord()}, {"num-examples": self._samples, "lacking": 1})
        down, slots = incoming.down, incoming.slots
        model = FlatModel(self.task.model, self.task.loss, self.node.device)
        with self.node.computing():
            work = Work(
                task=self.task,
                settings=self.settings,
                round=order.round,
                lr=order.lr,
                clients=[order.client],
                down=down,
                buffers=flat_buffers(incoming.buffers),
                slots=lambda _: slots,
                first=lambda _: order.first,
            )
            (reply,) = serial(self.algorithm, model, work)
        return incoming.reply(reply, model.buffer_tensors, self._samples)

    def evaluate(self, message: Message) -> Message:
        """Loss and metric of the global model on this client's test data."""
        with self.node.computing():
            scores = evaluate_arrays(self.task, message.content.array_records[ARRAYS], self.node.device)
        return reply_to(message, {}, {"num-examples": length(self.task.test[1]), **scores})

    @property
    def _samples(self) -> int:
        return self.task.size(self.node.partition)

    @property
    def _steps(self) -> int:
        return self.settings.steps(self._samples)


def own_part(task: Task, node: Node) -> Task:
    """The task with only this node's data, at the index of its partition."""
    known = len(task.clients)
    if known not in (1, node.partitions):
        raise UserError(
            f"task_for_partition: the task has {known} clients; it must have only this one, or all {node.partitions}"
        )
    if not 0 <= node.partition < node.partitions:
        raise UserError(f"partition-id: must be from 0 to {node.partitions - 1}, got {node.partition}")
    own, nothing = 0 if known == 1 else node.partition, [None] * node.partitions
    clients: list[Any] = [*nothing]  # the other clients' data is not on this node
    tests: list[Any] = [*nothing]
    clients[node.partition], tests[node.partition] = task.data(own), task.client_test(own)
    return replace(task, clients=clients, client_tests=tests, names=None if known == 1 else task.names)


def store_of(order: Order, context: Context) -> NodeStore:
    """The files of the client and run that a message names."""
    return NodeStore(state_dir(context), order.run, order.client)
