"""Decide what a caller is told that waits for Kafka to have an event, and when it looks again."""

from dataclasses import dataclass
from hashlib import sha256
from shlex import quote
from typing import Any, NamedTuple

from outbox.errors import BadSettings
from outbox.event import Event

# The relay looks ten times a second once it knows that somebody asks.
FIRST, LONGEST, _GROWTH = 0.1, 1.0, 1.5

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Published:
    """Kafka has the event, and all others that were committed before the call."""

    after: float
    """How long the caller has waited, in seconds."""


@dataclass(frozen=True, slots=True)
class Parked:
    """An event of this key is parked, so that the relay waits for an operator."""

    after: float
    """How long the caller has waited, in seconds."""

    said: str
    """All that is known, in a sentence for a log, with the command that lists what is parked."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time is over, and no relay has reported the event; it may still publish it."""

    after: float
    """How long the caller has waited, in seconds."""

    said: str
    """All that is known, in a sentence for a log."""


class Lane(NamedTuple):
    """A key of a topic, whose events keep their order."""

    topic: str
    key: bytes

    @property
    def digest(self) -> bytes:
        """The bytes by which `outbox.drained` knows the lane."""
        return sha256(self.topic.encode() + b"\0" + self.key).digest()


def lane_of(event: Event[Any]) -> Lane:
    """
    Return the lane of an event.

    Raises:
        BadSettings: the event has no key.
    """
    key = event.key_bytes()
    if key is None:
        msg = (
            f"event {event.id} has no key: the outbox cannot tell this role whether it is parked, "
            "so nobody can wait for it; give events a key, or ask `dovecote find` about this one"
        )
        raise BadSettings(msg)
    return Lane(event.topic, key)


def require_timeout(timeout: object) -> None:
    """
    Check how long a caller waits.

    Raises:
        BadSettings: the number is impossible.
    """
    if not (isinstance(timeout, int | float) and 0 <= timeout <= _DAY):
        msg = f"timeout={timeout!r} is not a number of seconds from 0 to 86400"
        raise BadSettings(msg)


def told(lane: Lane, *, left: bool, free: bool, after: float) -> Published | Parked | None:
    """
    Return the result, or None while there is none.

    `left` says that all events that were committed before the call are published or parked, and
    `free` that besides nothing of the lane is parked.
    """
    if free:
        return Published(after)
    if not left:
        return None
    topic, key = lane.topic, lane.key.decode(errors="replace")
    return Parked(
        after,
        f"an event of key {key!r} for topic {topic!r} is parked, this one or an earlier one: "
        f"`dovecote relay parked list --topic {quote(topic)}` names the reason",
    )


def timed_out(after: float) -> TimedOut:
    """Return the result for a caller that has waited for `after` seconds."""
    return TimedOut(
        after,
        f"no relay has reported within {after:.3g} s that the event is published, and one may "
        "still do so; `dovecote relay doctor` says whether one runs",
    )


def next_pause(pause: float) -> float:
    """Return how long to wait after a look that followed `pause` seconds after another."""
    return min(pause * _GROWTH, LONGEST)
