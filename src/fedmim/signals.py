"""Ctrl-C and SIGTERM: both end a command in the same way, between two steps that belong together and not amid them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which whatever handles Ctrl-C handles as well."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """The exit code of a program that a signal ended: 128 and the signal's number."""
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise Terminated on SIGTERM, unless the program handles or ignores that signal already."""
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """If the block is interrupted, note how to resume what it did; the command line prints the note."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(how)
        raise


@contextmanager
def held() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block has ended, for steps that belong together and take a moment."""
    if not _in_main_thread():  # others are not interrupted
        yield
        return
    came: list[int] = []
    handlers = {each: handler for each in ENDING if callable(handler := signal.getsignal(each))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, _: came.append(number))
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)


def ignore_signals() -> None:
    """Ignore Ctrl-C and SIGTERM from now on: the program is about to end."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
