"""The side of a process that a parent has started: it reports to it, and ends with it."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

VARIABLE = "DOVECOTE_PROCESS"
"""The variable by which a parent tells a process its number and the socket between the two."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process as one of several under a parent."""

    number: int
    """Its number, from 0 on."""

    _parent: socket.socket

    def serves(self, port: int | None) -> None:
        """Tell the parent that the work begins, and where this process answers for itself."""
        # A parent that is gone already is noticed by `ends_with_parent`.
        with contextlib.suppress(OSError):
            self._parent.sendall(json.dumps({"port": port}).encode() + b"\n")

    def ends_with_parent(self, end: Callable[[], object]) -> None:
        """Call `end` in a thread of its own once the parent is gone, however it ended."""

        def watch() -> None:
            try:
                while self._parent.recv(4096):
                    pass  # the parent says nothing
            except OSError:
                pass  # it is gone, which is the news
            end()

        threading.Thread(target=watch, name="parent", daemon=True).start()


def child(environ: MutableMapping[str, str]) -> Child | None:
    """
    Return this process's side if a parent started it; processes that it starts are no children.
    """
    told = environ.pop(VARIABLE, None)
    if told is None:
        return None
    number, _, descriptor = told.partition(":")
    os.set_inheritable(int(descriptor), False)  # noqa: FBT003  # the function has no name for it
    return Child(int(number), socket.socket(fileno=int(descriptor)))
