"""Signals that ask a process to end, which its forked children take as their own again."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, NoReturn

INTERRUPTED = 130
"""The exit status of a program that was interrupted: 128 and the number of SIGINT."""

_ENDING = (signal.SIGTERM, signal.SIGINT)

_ours: dict[int, list[tuple[Callable[..., object], Any]]] = {number: [] for number in _ENDING}
"""For each signal, what is called, and what was called before; the newest is last."""


@contextmanager
def beginning() -> Iterator[None]:
    """
    Let Ctrl-C end the process at once with `INTERRUPTED`, until the end of the block.

    The block holds the imports of a program. An exception there would show their traceback, and
    a library that is half loaded may turn it into another one. Only the main thread may call this.
    """
    # A shell starts a program in the background with SIGINT ignored, and that stays so.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def on_end(end: Callable[..., object]) -> None:
    """
    Call `end` when this process is asked to end; only the main thread may call this.

    A thread of its own calls `end`, which may take any lock. A signal comes between any two steps
    of the main thread, such as two steps of an event's `wait`: `set` would wait for that for ever.

    A process that is forked from this one, such as a handler's own, does not: it has neither our
    threads nor anything to end, and would never hear of the signal.
    """
    _heard(end)


@contextmanager
def ending_within(end: Callable[..., object]) -> Iterator[None]:
    """As `on_end`, until the end of the block."""
    asked = _heard(end)
    try:
        yield
    finally:
        for number, known in _ours.items():
            signal.signal(number, _handler(known.pop()[1]))
        asked.put(None)


def _leave(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def _heard(end: Callable[..., object]) -> "SimpleQueue[int | None]":
    asked: SimpleQueue[int | None] = SimpleQueue()

    def asks(number: int, _: object) -> None:
        asked.put(number)  # one of the few calls that are safe in the middle of another of theirs

    def calls() -> None:
        while (number := asked.get()) is not None:
            end(number, None)

    threading.Thread(target=calls, name="ending", daemon=True).start()
    for number, known in _ours.items():
        known.append((asks, signal.signal(number, asks)))
    return asked


def _forked() -> None:
    for number, known in _ours.items():
        # A handler that came after ours is the user's own, and stays.
        if known and signal.getsignal(number) is known[-1][0]:
            signal.signal(number, _handler(known[0][1]))
        known.clear()


def _handler(before: Any) -> Any:  # noqa: ANN401  # as `signal.signal` gives and takes it
    # None: a library in C had set it, and Python cannot set that again.
    return signal.SIG_DFL if before is None else before


os.register_at_fork(after_in_child=_forked)
