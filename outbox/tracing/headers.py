"""Read the trace context in a record's headers, which may hold anything."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from outbox.event import TRACEPARENT as _EVENTS_OWN
from outbox.event import Event, Headers

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

MOST_STATE: Final = 512
"""The most bytes of `tracestate`: W3C asks nobody to pass on more."""
MOST_BYTES: Final = 1_024
"""The most bytes of a header that a propagator of the user's gets, or adds."""

_MOST_MEMBERS = 32
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?")
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_FORBIDDEN = b"ff"
_FIRST = b"00"


class Parent(NamedTuple):
    """The span that a record comes from."""

    trace: int
    span: int
    flags: int
    state: tuple[tuple[str, str], ...] = ()

    @property
    def sampled(self) -> bool:
        return bool(self.flags & 1)


def parent(headers: Iterable[tuple[str, bytes | None]]) -> Parent | None:
    """Return the span in W3C's headers; None if there is none, or none that is valid."""
    found: bytes | None = None
    state: bytes | None = None
    for name, value in headers:
        if name == TRACEPARENT:
            if found is None:
                found = value
        elif name == TRACESTATE and state is None:
            state = value
    if found is None or len(found) > MOST_BYTES:
        return None
    parts = _PARENT.fullmatch(found)
    if parts is None:
        return None
    version, trace, span, flags, more = parts.groups()
    if version == _FORBIDDEN or (version == _FIRST and more is not None):
        return None
    ids = int(trace, 16), int(span, 16)
    if not all(ids):
        return None
    return Parent(*ids, int(flags, 16), () if state is None else members(state))


def members(state: bytes) -> tuple[tuple[str, str], ...]:
    """Return the members of a `tracestate`; none of them if it is too long or not valid."""
    if len(state) > MOST_STATE:
        return ()
    found: dict[str, str] = {}
    for each in state.decode("ascii", "replace").split(","):
        member = each.strip(" \t")
        if not member:
            continue
        if _MEMBER.fullmatch(member) is None:
            return ()
        key, _, value = member.partition("=")
        if key in found:
            return ()
        found[key] = value
    return tuple(found.items()) if len(found) <= _MOST_MEMBERS else ()


def texts(headers: Iterable[tuple[str, bytes | None]], names: frozenset[str]) -> dict[str, str]:
    """Return the headers of these names as text, if each is short and ASCII that can be shown."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name in names and name not in found and value and len(value) <= MOST_BYTES:
            text = value.decode("ascii", "replace")
            if text.isascii() and text.isprintable():
                found[name] = text
    return found


def kept(carrier: Iterable[tuple[str, object]]) -> tuple[tuple[str, bytes], ...]:
    """
    Return what a record gets of the headers that a propagator has made, `traceparent` first.

    Too long ones are left out: they must not make an event too large.
    """
    found: list[tuple[str, bytes]] = []
    for name, text in carrier:
        if not isinstance(text, str):
            continue
        value = text.encode(errors="replace")
        if name == TRACEPARENT:
            if _EVENTS_OWN.fullmatch(text):
                found.insert(0, (name, value))
        elif value and len(value) <= (MOST_STATE if name == TRACESTATE else MOST_BYTES):
            found.append((name, value))
    return tuple(found)


def with_trace(event: Event, carried: Headers) -> tuple[str | None, Headers]:
    """
    Return the `traceparent` of an event and its headers, now that it carries a trace.

    A header of its own precedes one of the same name that a propagator has made.
    """
    own: Headers = event.headers  # type: ignore[assignment]  # normalised when the event was made
    named = {TRACEPARENT, *(name for name, _ in own)}
    trace = next((value for name, value in carried if name == TRACEPARENT), None)
    more = (*(pair for pair in carried if pair[0] not in named), *own)
    return None if trace is None else trace.decode(), more
