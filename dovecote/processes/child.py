"""The side of a process that a parent has started: it reports to it, and ends with it."""

import contextlib
import hmac
import json
import os
import re
import socket
import threading
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, NamedTuple

from outbox.errors import BadSettings

if TYPE_CHECKING:  # a process that serves nothing does not load a server
    from dovecote.process.http.server import App, Receive, Scope, Send

VARIABLE = "DOVECOTE_PROCESS"
"""The variable by which a parent tells a process what `Told` has."""

CALLER = "dovecote-caller"
"""The header by which a parent tells who asks: the secret, and the address."""

_TOLD = re.compile(r"([0-9]{1,4}):([0-9]{1,9}):([0-9]{1,9}):([0-9a-f]{32})")
_NO_PARENT = (
    f"{VARIABLE} is set, and only a parent of several processes may set it: unset it; the setting "
    "is `processes`"
)
_ORPHANED = 143
"""The status of a process whose parent ends before it has begun: as of one ended by SIGTERM."""


class Told(NamedTuple):
    """A parent tells this to each of its processes."""

    number: int
    """Its number, from 0 on."""
    control: int
    """The descriptor of the socket between the two."""
    turns: int
    """The descriptor of the file that they lock to write a record of the log."""
    secret: str
    """The word by which a process knows a request of its parent."""

    def text(self) -> str:
        """Return it as the variable has it."""
        return ":".join(map(str, self))


class Child:
    """A process as one of several under a parent."""

    def __init__(self, told: Told, parent: socket.socket) -> None:
        self.number, self.turns = told.number, told.turns
        self._parent, self._secret = parent, told.secret.encode()
        self._end: Callable[[], object] = _leave
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def serves(self, port: int | None) -> None:
        """Tell the parent that the work begins, and where this process answers for itself."""
        # `_watch` notices a parent that is gone already.
        with contextlib.suppress(OSError):
            self._parent.sendall(json.dumps({"port": port}).encode() + b"\n")

    def ends_with_parent(self, end: Callable[[], object]) -> None:
        """
        Call `end` in a thread of its own once the parent is gone, however it ended.

        Before this is called, a process without a parent ends at once.
        """
        self._end = end

    def knows_callers(self, app: "App") -> "App":
        """Return an application that takes the parent's word for the address of a caller."""

        async def knowing(scope: "Scope", receive: "Receive", send: "Send") -> None:
            if scope["type"] == "http" and (address := self._caller(scope)) is not None:
                scope["client"] = (address, 0)
            await app(scope, receive, send)

        return knowing

    def _caller(self, scope: "Scope") -> str | None:
        told = dict(scope["headers"]).get(CALLER.encode(), b"")
        secret, _, address = told.partition(b" ")
        return address.decode("latin-1") if hmac.compare_digest(secret, self._secret) else None

    def _watch(self) -> None:
        try:
            while self._parent.recv(4096):
                pass  # the parent says nothing
        except OSError:
            pass  # it is gone, which is the news
        self._end()


def child(environ: MutableMapping[str, str]) -> Child | None:
    """
    Return this process's side if a parent started it; processes that it starts are no children.

    Raises:
        BadSettings: the variable is set, and not by a parent.
    """
    told = environ.pop(VARIABLE, None)
    if told is None:
        return None
    if (found := _TOLD.fullmatch(told)) is None:
        raise BadSettings(_NO_PARENT)
    known = Told(int(found[1]), int(found[2]), int(found[3]), found[4])
    try:
        for each in (known.control, known.turns):
            os.set_inheritable(each, False)  # noqa: FBT003  # the function has no name for it
        parent = socket.socket(fileno=known.control)
    except OSError as error:
        raise BadSettings(_NO_PARENT) from error
    return Child(known, parent)


def _leave() -> None:
    """End at once: nothing has begun, so there is nothing to finish."""
    os._exit(_ORPHANED)
