"""Renew objects with threads and sockets in a forked process, which has only copies of them."""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Uses threads, locks or sockets that a forked process does not have or must not use."""

    def forked(self) -> None:
        """Begin anew, in the child, before anything else runs there."""


_known: WeakSet[Forked] = WeakSet()


def know(made: Forked) -> None:
    """Call `made.forked()` in each process that is forked from this one."""
    _known.add(made)


def leave(made: object) -> None:
    """
    Keep `made`, which is the parent's, alive for ever.

    A Kafka client would otherwise, on its end, wait for threads that only the parent has.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


def _renew() -> None:
    for each in list(_known):
        each.forked()


os.register_at_fork(after_in_child=_renew)
