"""Ctrl-C and SIGTERM: both end a command in the same way, and never in the middle of an atomic step."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)
# The default handlers. SIGALRM is used to retry a signal that arrived during an import.
USUAL: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGALRM: signal.SIG_DFL,
}
AGAIN = 0.01  # seconds until a signal during an import is retried

_stop: KeyboardInterrupt | None = None  # for the last signal in a `terminable` block


class Terminated(KeyboardInterrupt):
    """SIGTERM; code that handles Ctrl-C handles it too."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """The exit code of a program ended by a signal: 128 plus the signal's number."""
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and Terminated on SIGTERM, unless the program has its own handlers.

    During an import the signal waits until the import has ended. Code that catches all exceptions may swallow it and
    then fail with another error or continue; so it is raised again instead of any error, and by `raise_swallowed`.
    """
    global _stop
    ours = [each for each, usual in USUAL.items() if _in_main_thread() and signal.getsignal(each) is usual]
    for each in ours:
        signal.signal(each, _raise_stop)
    try:
        yield
    except Exception as error:
        if _stop is not None:
            raise _stop from error
        raise
    finally:
        _stop = None
        if signal.SIGALRM in ours:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for each in ours:
            signal.signal(each, USUAL[each])


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """If the block is interrupted, add a note on how to resume; the command line prints it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(how)
        raise


@contextmanager
def held() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block has ended, for short atomic steps."""
    if not _in_main_thread():  # other threads are not interrupted
        yield
        return
    came: list[int] = []
    handlers: dict[int, Any] = {each: handler for each in USUAL if callable(handler := signal.getsignal(each))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, _: came.append(number))
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in came:  # not raised again: tasks of Ray are interrupted by Python, and block the signal itself
            handlers[number](number, sys._getframe())


def raise_swallowed() -> None:
    """Raise the exception of an earlier signal again, if other code swallowed it."""
    if _stop is not None:
        raise _stop


def ignore_signals() -> None:
    """Ignore Ctrl-C and SIGTERM from now on: the program is about to end."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _raise_stop(number: int, frame: FrameType | None) -> None:
    global _stop
    if number in ENDING:
        _stop = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
    if _imports(frame) and signal.getsignal(signal.SIGALRM) is _raise_stop:
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
    else:
        raise_swallowed()


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported. An exception there may abort the process, for example in torch."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
