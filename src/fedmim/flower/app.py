"""ClientApp: Flower's, with the one addition that a `FlowerOptimizer` in its training function finds its message.

The training function stays as it is: it builds its reply from the model and its metrics. What the method uploads is put
in place of the model, and the client's state is written, after the function has returned.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp as FlowerClientApp

from fedmim.flower.messages import ARRAYS, FORGET, METRICS, LackingError, Order, reply_to
from fedmim.flower.node import state_dir
from fedmim.flower.store import NodeStore

if TYPE_CHECKING:
    from fedmim.flower.optimizer import FlowerOptimizer


@dataclass
class CurrentRound:
    """The message that a training function is answering, and the optimiser that it has created."""

    message: Message
    context: Context
    optimizer: FlowerOptimizer | None = None


CURRENT: ContextVar[CurrentRound | None] = ContextVar("fedmim_round", default=None)


class ClientApp(FlowerClientApp):
    """Flower's ClientApp for clients that train with `FlowerOptimizer`.

    It also answers the server's questions, unless the app has functions of its own for them: which partition the client
    has, from its node-config, and to remove the client's files at the end of a run.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._answered: set[str] = set()  # the questions for which the app has its own functions

    def query(self, action: str = "default", **options: Any) -> Callable[[Any], Any]:
        """As Flower's."""
        self._answered.add("query" if action == "default" else f"query.{action}")
        return super().query(action, **options)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        kind = message.metadata.message_type
        if kind == MessageType.TRAIN:
            return self._train(message, context)
        if kind == MessageType.QUERY and kind not in self._answered:
            return Message(RecordDict({METRICS: own_partition(context)}), reply_to=message)
        if kind == FORGET and kind not in self._answered:
            order = Order.of(message)
            NodeStore(state_dir(context), order.run, order.client).forget()
            return Message(RecordDict(), reply_to=message)
        return super().__call__(message, context)

    def _train(self, message: Message, context: Context) -> Message:
        current = CurrentRound(message, context)
        token = CURRENT.set(current)
        try:
            reply = super().__call__(message, context)
        except LackingError:
            return reply_to(message, {ARRAYS: ArrayRecord()}, {"lacking": 1})
        finally:
            CURRENT.reset(token)
        return reply if current.optimizer is None else current.optimizer.complete(reply)


def own_partition(context: Context) -> MetricRecord:
    """What a node says about itself: its partition, if its node-config has one."""
    names = ("partition-id", "num-partitions")
    return MetricRecord({name: int(context.node_config[name]) for name in names if name in context.node_config})
