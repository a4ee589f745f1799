"""One round's messages and the replies to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from torch import Tensor

from fedmim.algorithms import Vectors
from fedmim.flower.history import LackingError
from fedmim.flower.messages import ARRAYS, METRICS, from_record, number, payload, without_prefix
from fedmim.models.flat import flat_buffers
from fedmim.simulation.training import Reply

LACKING = f"{LackingError.__module__}.{LackingError.__qualname__}"


@dataclass(frozen=True)
class Answer:
    """A reply that can be read."""

    reply: Reply
    samples: int  # the size of the client's data


class Exchange:
    """The messages to clients in one round, their bytes, and the replies by client."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.failures: dict[int, str] = {}  # client -> what happened
        self.lacking: set[int] = set()  # clients that lack past models which the server takes them to have
        self.bytes_down = 0
        self.bytes_up = 0
        self._sent: list[tuple[int, Message]] = []

    def send(self, client: int, message: Message) -> Message:
        """Remember a message that is about to be sent."""
        self._sent.append((client, message))
        self.bytes_down += payload(message.content.array_records[ARRAYS])
        self.lacking.discard(client)
        return message

    def take(self, replies: Iterable[Message], params: Tensor, buffers: Tensor, timeout: float) -> None:
        """Read the replies to all messages sent since the last call; `params` and `buffers` say what fits."""
        # A reply may not name its node where the node went away, but it always names the message.
        by_message = {reply.metadata.reply_to_message_id: reply for reply in replies}
        for client, message in self._sent:
            reply = by_message.get(message.metadata.message_id)
            if reply is None:
                self.failures[client] = f"no reply within {timeout:g} s"
            elif reply.has_error() and LACKING in (reply.error.reason or ""):  # from a training function of the user's
                self.lacking.add(client)
            elif reply.has_error():
                self.failures[client] = reply.error.reason or f"error {reply.error.code}"
            elif message.metadata.message_type == "train":
                self._read(client, reply.content, params, buffers)
        self._sent = []

    def _read(self, client: int, content: RecordDict, params: Tensor, buffers: Tensor) -> None:
        arrays, metrics = content.array_records.get(ARRAYS), content.metric_records.get(METRICS)
        if arrays is None or metrics is None:
            self.failures[client] = f'its reply lacks the records "{ARRAYS}" and "{METRICS}"'
            return
        self.bytes_up += payload(arrays)
        if metrics.get("lacking"):
            self.lacking.add(client)
            return
        try:
            vectors, tensors = from_record(arrays, params.device)
            loss, samples = number(metrics, "train_loss"), int(number(metrics, "num-examples"))
        except (ValueError, TypeError, KeyError) as error:
            self.failures[client] = f"its reply cannot be read ({error})"
            return
        upload = {name: vector for name, vector in vectors.items() if not name.startswith("slot.")}
        finite = bool(metrics.get("finite", 1))
        reply = Reply(client, upload, without_prefix("slot", vectors), flat_buffers(tensors), loss, finite)
        if obstacle := self._unfit(reply, params, buffers) or ("it has no data" if samples < 1 else None):
            self.failures[client] = obstacle
        else:
            self.answers[client] = Answer(reply, samples)

    def _unfit(self, reply: Reply, params: Tensor, buffers: Tensor) -> str | None:
        """Why a reply cannot be averaged with the others; None where it can."""
        names = set(next(iter(self.answers.values())).reply.upload) if self.answers else {"params"}
        if not names <= set(reply.upload) or (self.answers and names != set(reply.upload)):
            return f"its reply has the vectors {', '.join(reply.upload) or 'none'}, others {', '.join(sorted(names))}"
        vectors: Vectors = {**reply.upload, **reply.slots}
        for name, vector in vectors.items():
            if (vector.shape, vector.dtype) != (params.shape, params.dtype):
                return f"its {name} is {shape_and_type(vector)}, the model {shape_and_type(params)}"
        if reply.buffers.shape != buffers.shape:
            return f"its buffers have {len(reply.buffers)} numbers, the model's {len(buffers)}"
        return None


def shape_and_type(vector: Tensor) -> str:
    """The shape and type of a vector in words."""
    return f"{tuple(vector.shape)} of {str(vector.dtype).removeprefix('torch.')}"
