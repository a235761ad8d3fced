"""
Hold the connections of a server: a bound on their number, and a deadline for each wait.

uvicorn has neither. A connection that sends nothing, or sends a byte from time to time, would
otherwise hold a descriptor for ever.
"""

import asyncio
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

Wait = Literal["head", "body", "reader"]
"""The client's next step: to send a request's head, to send its body, or to read an answer."""


_SECONDS: Mapping[Wait, float] = MappingProxyType({"head": 10.0, "body": 60.0, "reader": 60.0})


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that clients can take from a server."""

    connections: int
    """
    More connections than this end those that have waited longest for their clients. There are as
    many as requests and scrapes may be, and a few for probes.
    """

    requests: int
    """More requests than this at a time are refused; scrapes and probes do not count."""

    seconds: Mapping[Wait, float] = field(default_factory=lambda: _SECONDS)
    """How long the server waits for each step of a client."""


class Connections:
    """All connections of a server."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._open: set[ClientConnection] = set()
        self._requests, self._full = 0, False

    def protocol(self) -> type["ClientConnection"]:
        """Return the class of these connections, for uvicorn."""

        class Held(ClientConnection):
            held = self

        return Held

    def admit(self, new: "ClientConnection") -> None:
        """Take a connection; if there are too many, one that waits for its client ends."""
        self._open.add(new)
        if len(self._open) > self.bounds.connections and not self._full:
            self._full = True
            # A timer comes after all that clients have sent until now: it is read first.
            new.loop.call_later(0, self._make_room)

    def leave(self, gone: "ClientConnection") -> None:
        self._open.discard(gone)

    def begin(self) -> bool:
        """Return whether one more request may be answered now; if so, `done` ends it."""
        full = self._requests >= self.bounds.requests
        if full and not self._end_longest(("body", "reader")):
            return False
        self._requests += 1
        return True

    def done(self) -> None:
        self._requests -= 1

    def _make_room(self) -> None:
        self._full = False
        while len(self._open) > self.bounds.connections:
            if not self._end_longest(("head", "body", "reader")):
                break

    def _end_longest(self, waits: Container[Wait | None]) -> bool:
        waiting = [each for each in self._open if each.waits in waits]
        if waiting:
            longest = min(waiting, key=lambda each: each.since)
            longest.end()
            self.leave(longest)
        return bool(waiting)


class ClientConnection(H11Protocol):
    """One connection, which knows since when it waits for its client."""

    held: ClassVar[Connections]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.waits: Wait | None = None
        self.since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base
        super().connection_made(transport)
        self._note(anew=True)
        self.held.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        self.held.leave(self)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        self._note(anew=self.cycle is not before)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        # The next request may be here already, and has begun.
        self._note(anew=self.cycle is answered)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note()

    def end(self) -> None:
        """End the connection, whatever its client has not read yet."""
        self._forget()
        self.transport.abort()

    def _note(self, *, anew: bool = False) -> None:
        """Note what is waited for; bytes that do not complete it are no reason to wait longer."""
        waits = self._step()
        if self._ended or (waits == self.waits and not anew):
            return
        self.waits, self.since = waits, self.loop.time()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if waits is not None:
            self._deadline = self.loop.call_later(self.held.bounds.seconds[waits], self.end)

    def _step(self) -> Wait | None:
        if self.flow.write_paused:
            return "reader"
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]  # none yet
            return "head"
        return "body" if self.cycle.more_body else None

    def _forget(self) -> None:
        self._ended, self.waits = True, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
