"""Sending messages, and taking the replies one at a time.

Flower's `send_and_receive` returns when the last reply has arrived, and holds all of them: 100 replies of a ResNet-18
are 4.5 GB. Here the caller gets one reply after the other, in the order of the messages. Replies that came early wait
at the SuperLink.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

SHORTEST, LONGEST = 0.02, 1.0  # seconds between two looks for a reply
NO_REPLY = 0  # code of the errors that are made here, Flower's "unknown"


def deliver(grid: Grid, messages: Iterable[Message], timeout: float) -> Iterator[Message]:
    """Send the messages, one by one. The iterator yields the reply to each, an error if there is none in time."""
    sent = [send(grid, message) for message in messages]
    end = time.monotonic() + timeout
    return (wait_for(grid, message, end, timeout) for message in sent)


def send(grid: Grid, message: Message) -> Message:
    """Send a message; return it without its content, which may be large. It has no id if it was not accepted."""
    message_id = next(iter(grid.push_messages([message])), None)
    sent = Message(RecordDict(), message.metadata.dst_node_id, message.metadata.message_type)
    sent.metadata.__dict__["_message_id"] = message_id or ""
    return sent


def wait_for(grid: Grid, message: Message, end: float, timeout: float) -> Message:
    """The reply to a message that was sent, or an error at a time of `time.monotonic`."""
    if not message.metadata.message_id:
        return _error(message, "the SuperLink did not accept the message")
    pause = SHORTEST
    while (reply := pull(grid, message)) is None:
        left = end - time.monotonic()
        if left <= 0:
            return _error(message, f"no reply within {timeout:g} s")
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST)
    return reply


def pull(grid: Grid, message: Message) -> Message | None:
    """The reply to a message that was sent; None if it has not arrived."""
    try:
        replies = list(grid.pull_messages([message.metadata.message_id]))
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith("httpx"):
            raise  # the connection to the SuperLink, not this reply
        return _error(message, f"the reply cannot be read ({type(error).__name__}: {error})")
    return replies[0] if replies else None


def _error(message: Message, reason: str) -> Message:
    return Message(Error(NO_REPLY, reason), reply_to=message)
