"""Ctrl-C and SIGTERM: both end a command in the same way, between two steps that belong together and not amid them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)
# What happens on a signal unless a program says otherwise. The alarm is to look again at one that came in an import.
USUAL: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGALRM: signal.SIG_DFL,
}
AGAIN = 0.01  # seconds after which a signal during an import is looked at again

_stop: KeyboardInterrupt | None = None  # for the last signal in a `terminable` block


class Terminated(KeyboardInterrupt):
    """SIGTERM, which whatever handles Ctrl-C handles as well."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """The exit code of a program that a signal ended: 128 and the signal's number."""
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and Terminated on SIGTERM, unless the program has handlers of its own.

    During an import the signal waits until it has ended. Code that catches everything may swallow the exception, and
    then fail with another or carry on; so it is raised again in place of any error, and by `raise_swallowed`.
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
    handlers = {each: handler for each in USUAL if callable(handler := signal.getsignal(each))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, _: came.append(number))
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)


def raise_swallowed() -> None:
    """Raise the exception of a signal that came and ended nothing, because somebody caught it."""
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
    """Whether a module is being imported. An exception there may abort the process, as amid the import of torch."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
