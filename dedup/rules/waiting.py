"""Decide what a caller that waits for an event is told, and when it looks again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from dedup.rules.identity import Identity, stored
from outbox.errors import BadSettings
from outbox.event import Event

SAFETY = 5.0
"""How often a caller looks although nobody has notified it, in seconds."""

LEASE = 15.0
"""How long a caller is remembered after it has registered, in seconds."""

# Until every transaction has ended that may not know of the caller.
_FIRST, _LONGEST = 0.02, 1.0

_OFTEN, _DAY = 0.01, 86_400


@dataclass(frozen=True, slots=True)
class Applied:
    """The group has handled the event, and its effects are committed."""

    round: int
    """How often the event had come round through a retry topic; 0 is the first time."""

    at: datetime
    """When the transaction of its effects began, by the clock of Postgres; in UTC."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time is over, and the group has not finished the event; it may still do so."""

    after: float
    """How long the caller has waited, in seconds."""

    again: timedelta | None
    """The time after which the handler wanted the event again; None: it has not asked for that."""

    said: str
    """All that is known, in a sentence for a log or an answer."""


class Wanted(NamedTuple):
    """An event as an inbox stores it, and the group that is to handle it."""

    consumer: str
    id: str

    @property
    def payload(self) -> str:
        """The text of the notification; the inbox's function `notify_waiting` is alike."""
        return sha256(f"{self.consumer} {self.id}".encode()).hexdigest()


class Sight(NamedTuple):
    """A row of the inbox's answer: what has been handled, as one snapshot sees it."""

    oldest: int
    """All transactions before this one have ended."""
    next: int
    """No transaction from this one on has begun."""
    nr: int | None
    """The event's place in the question, from 1; None: nothing of it has been handled."""
    round: int | None
    at: int | None
    """In microseconds since 1970."""
    again: int | None
    """In milliseconds."""


def wanted(event: object, source: str, consumer: str) -> Wanted:
    """
    Return what is waited for: the event of an `Event`, or of an id and a source.

    Raises:
        BadSettings: it is neither, or there is no such group.
    """
    if not consumer or "\0" in consumer:
        msg = f"by={consumer!r} is not the name of a consumer group"
        raise BadSettings(msg)
    if not isinstance(event, Event) and hasattr(event, "id"):
        # The `id` of an order, say, is not that of its event, and nobody would ever handle it.
        msg = (
            f"{type(event).__name__} is no event: give the `Event` that was written, as from "
            "`as_event`, or the id of the event"
        )
        raise BadSettings(msg)
    id_ = getattr(event, "id", event)
    source = getattr(event, "source", source)
    text = str(id_) if not isinstance(id_, bytes) and id_ is not None else ""
    if not text or not source:
        msg = f"{event!r} is neither an event nor the id of one"
        raise BadSettings(msg)
    return Wanted(consumer, stored(Identity(source, text)))


def require_times(timeout: object, poll: object) -> None:
    """
    Check how long a caller waits, and how often it looks.

    Raises:
        BadSettings: a number is impossible; the message names it.
    """
    if not (isinstance(timeout, int | float) and 0 <= timeout <= _DAY):
        msg = f"timeout={timeout!r} is not a number of seconds from 0 to 86400"
        raise BadSettings(msg)
    if poll is not None and not (isinstance(poll, int | float) and _OFTEN <= poll <= _DAY):
        msg = f"poll={poll!r} is not a number of seconds from 0.01 to 86400"
        raise BadSettings(msg)


class Vigil:
    """
    One event that is waited for: when its caller registers and looks, and what it has seen.

    Times are of one monotonic clock, in seconds.
    """

    def __init__(self, now: float, poll: float | None = None) -> None:
        self._poll = poll
        self._again: int | None = None
        self._barrier: int | None = None
        self._pause = _FIRST
        self._renew = now
        self.due = now
        """When to look."""

    def is_to_register(self, now: float) -> bool:
        """Return whether the inbox has to be asked to notify, before the next look."""
        return self._poll is None and now >= self._renew

    def registered(self, now: float) -> None:
        """Note that the inbox will notify from now on."""
        self._renew = now + LEASE / 2

    def start_again(self, now: float) -> None:
        """Note that the connection was lost: what was notified meanwhile is not known."""
        self._renew, self._barrier, self._pause, self.due = now, None, _FIRST, now

    def seen(self, lines: Sequence[Sight], now: float) -> Applied | None:
        """Return the result if the inbox has one; otherwise decide when to look again."""
        for each in lines:
            if each.round is not None and each.at is not None and each.again is None:
                return Applied(each.round, datetime.fromtimestamp(each.at / 1e6, UTC))
            self._again = each.again if each.again is not None else self._again
        self.due = now + self._wait(lines[0])
        return None

    def timed_out(self, after: float, by: str) -> TimedOut:
        """Return the result for a caller that has waited for `after` seconds."""
        said = f"{by} has not handled the event within {after:.3g} s, and may still do so"
        again = None if self._again is None else timedelta(milliseconds=self._again)
        if again is not None:
            said += f"; its handler has asked for the event again after {again}"
        return TimedOut(after, again, said)

    def _wait(self, sight: Sight) -> float:
        if self._poll is not None:
            return self._poll
        if self._barrier is None:
            self._barrier = sight.next
        if sight.oldest >= self._barrier:
            return SAFETY
        # A transaction may have taken the event before it could know of us: it notifies nobody.
        self._pause, pause = min(self._pause * 2, _LONGEST), self._pause
        return pause
