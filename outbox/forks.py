"""Renew objects with threads and sockets in a forked process, which has only copies of them."""

import ctypes
import os
import sys
import traceback
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Uses threads, locks or sockets that a forked process does not have or must not use."""

    def forked(self) -> None:
        """Begin anew, in the child, before anything else runs there."""


_known: WeakSet[Forked] = WeakSet()

count = 0
"""How many forks lie between the program's first process and this one."""


def know(made: Forked) -> None:
    """Call `made.forked()` in each process that is forked from this one."""
    _known.add(made)


def leave(made: object) -> None:
    """
    Keep `made`, which is the parent's, alive for ever.

    A Kafka client would otherwise, on its end, wait for threads that only the parent has.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


def stay(before: int, error: BaseException | None = None) -> None:
    """
    End a process that was forked since there were `before` forks; return in any other.

    All that goes on from here is its parent's, such as an open transaction over a socket of both.
    """
    if count == before:
        return
    status = 0 if error is None else 1
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        status = (error.code or 0) & 0xFF
    elif isinstance(error, SystemExit):
        sys.stderr.write(f"{error.code}\n")
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _renew() -> None:
    global count  # noqa: PLW0603  # a process has one number
    count += 1
    for each in list(_known):
        each.forked()


os.register_at_fork(after_in_child=_renew)
