"""What becomes, in a process that was forked, of what its parent has threads and sockets for."""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Works by threads, locks or sockets that a forked process does not have, or must not use."""

    def forked(self) -> None:
        """Begin anew, in the child; nobody else runs there yet."""


_known: WeakSet[Forked] = WeakSet()


def know(made: Forked) -> None:
    """Have `made` told in each process that is forked from this one."""
    _known.add(made)


def leave(made: object) -> None:
    """
    Never let go of `made`, which is the parent's.

    To end it, a client of Kafka would wait for threads that only the parent has.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


def _tell() -> None:
    for each in list(_known):
        each.forked()


os.register_at_fork(after_in_child=_tell)
