"""What becomes of records that were not handled to their end: held, on a retry topic, or dead."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol, TypeAlias, TypeVar

from dedup import copies, storm
from dedup.aside import Held, Outage, Partition, Placed, Unfinished
from dedup.backoff import Backoff, Patience
from dedup.copies import Copy, Unwritable
from dedup.decode import Undecodable
from dedup.record import Record
from dedup.results import Dead, Result, Retry, Skip, failure
from dedup.retry import DeadLetter, Later, decide
from outbox import envelope
from outbox.envelope import Delivery
from outbox.errors import InvalidEvent

_log = logging.getLogger("dovecote.consumer.retries")

_UNREADABLE = (Undecodable, InvalidEvent)

Place: TypeAlias = tuple[str, int, int]
R = TypeVar("R", bound=Record)


class Sends(Protocol):
    """Writes a copy to a topic: `Letters`, or a list in a test."""

    def send(self, topic: str, copy: Copy) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptions:
    """
    What exceptions stand for: those of `dead`, of `skip`, and a retry else.

    A record that cannot be read is dead, unless `skip` says so: it will not read better later.
    """

    dead: tuple[type[Exception], ...] = ()
    skip: tuple[type[Exception], ...] = ()

    def result(self, error: Exception) -> Retry | Dead | Skip:
        """Return the result that `error` stands for."""
        told = failure(error)
        if isinstance(error, self.dead):
            return Dead(told.error)
        if isinstance(error, self.skip):
            return Skip(told.error)
        return Dead(told.error) if isinstance(error, _UNREADABLE) else told


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry topic, and what waits there: as long as `wait`, and longer, up to the next tier."""

    topic: str
    wait: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do with records that fail."""

    patience: Patience = field(default_factory=Backoff)

    exceptions: Exceptions = field(default_factory=Exceptions)

    tiers: Sequence[Tier] = ()
    """Retry topics, the shortest wait first; none: the key is held."""

    dead_letters: str | None = None
    """Topic of those that are given up; None: nothing is, each holds its key until it succeeds."""

    hop_limit: int | None = None
    """A record that came round more often is a dead letter."""

    longest_hold: timedelta = timedelta(minutes=5)
    """Longest wait of a record that has no dead-letter topic to go to."""

    def tier(self, wait: timedelta) -> Tier:
        """Return the retry topic for what waits so long."""
        fitting = [tier for tier in self.tiers if tier.wait <= wait]
        return fitting[-1] if fitting else self.tiers[0]


def _now() -> int:
    return time.time_ns() // 1_000_000


class Retries:
    """
    The `Aside` of a consumer, and what its handler is wrapped in.

    A record that is held is handled again with what it went through in its headers, just as one
    that comes back from a retry topic.
    """

    def __init__(self, plan: Plan, letters: Sends, *, now: Callable[[], int] = _now) -> None:
        self.plan = plan
        self._letters, self._now = letters, now
        self._held: dict[Place, Delivery] = {}
        self._retry_topics = frozenset(tier.topic for tier in plan.tiers)

    def handling(self, handle: Callable[[Record], Result]) -> Callable[[Record], Result]:
        """Return `handle` with exceptions as results, and held records as they are by now."""

        def handler(record: Record) -> Result:
            if (refused := storm.refusal(record, self.plan.hop_limit)) is not None:
                return Dead(refused)
            try:
                return handle(self.as_it_is(record))
            except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
                return self.plan.exceptions.result(error)

        return handler

    def as_it_is(self, record: R) -> R:
        """Return `record` with what it went through here, if it was held."""
        state = self._held.get(record[:3]) if self._held else None
        if state is None:
            return record
        return record._replace(headers=envelope.with_delivery(record.headers, state))

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Do nothing: what is held is held by its offset."""

    def early(self, record: Record) -> timedelta | None:
        """Return how long a record of a retry topic has to wait, if it is not due."""
        if record.topic not in self._retry_topics:
            return None
        due = copies.delivery(record).not_before
        wait = 0 if due is None else due - self._now()
        return timedelta(milliseconds=wait) if wait > 0 else None

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        """Put the record on a retry topic or among the dead letters, or hold its key."""
        now, before = self._now(), self._before(record, attempt)
        fate = decide(
            result,
            identity=(record.identity[0], before.round),
            delivery=before,
            now=now,
            patience=self.plan.patience,
        )
        as_it_is = record._replace(headers=envelope.with_delivery(record.headers, before))
        if isinstance(fate, Later):
            if not self.plan.tiers:
                return self._hold(record, fate, now)
            try:
                return self._recirculate(as_it_is, fate, now)
            except (InvalidEvent, Unwritable) as error:
                fate = DeadLetter(
                    f"{error}; before that: {fate.error or 'it asked to come again'}"
                )
        return self._bury(record, as_it_is, fate, now)

    def released(self, record: Record) -> None:
        """Forget what a record went through here."""
        self._held.pop(record[:3], None)

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Forget what was held: the next consumer begins anew with it."""
        gone = set(partitions)
        for place in [place for place in self._held if place[:2] in gone]:
            self._held.pop(place, None)

    def _before(self, record: Record, attempt: int) -> Delivery:
        """Return what the record went through before this result."""
        held = self._held.get(record[:3])
        return replace(copies.delivery(record) if held is None else held, attempt=attempt)

    def _hold(self, record: Record, fate: Later, now: int) -> Held:
        as_it_is = self.as_it_is(record)
        state = envelope.retried(
            as_it_is,
            now=now,
            not_before=fate.due,
            error=copies.cut(fate.error or ""),
            failed=fate.error is not None,
        )
        # The round tells an event that was asked to come again from a copy of what was handled.
        # One that failed is still the same.
        rounds = copies.delivery(as_it_is).round + (fate.error is None)
        self._held[record[:3]] = replace(state, round=rounds, error=fate.error)
        return Held(timedelta(milliseconds=fate.due - now))

    def _recirculate(self, record: Record, fate: Later, now: int) -> Placed:
        copy = copies.retried(record, record.identity, now=now, due=fate.due, error=fate.error)
        tier = self.plan.tier(timedelta(milliseconds=fate.due - now))
        self._letters.send(tier.topic, copy)
        if fate.error is not None:
            _log.warning(
                "%s failed (attempt %d) and waits on %s: %s",
                record.place,
                copies.delivery(record).attempt,
                tier.topic,
                fate.error,
            )
        return Placed("retry")

    def _bury(self, record: Record, as_it_is: Record, fate: DeadLetter, now: int) -> Placed | Held:
        topic = self.plan.dead_letters
        if topic is None:
            # Nobody said where it may go, so it stays, and says so each time.
            later = Later(now + _milliseconds(self.plan.longest_hold), fate.error)
            return self._hold(record, later, now)
        copy = copies.dead(as_it_is, as_it_is.identity, now=now, error=fate.error)
        try:
            self._letters.send(topic, copy)
        except Unwritable as error:
            # Without what made it too large; its origin says where the whole of it is.
            told = f"{fate.error}; without its value: {error}"
            try:
                self._letters.send(topic, copies.emptied(as_it_is, now=now, error=told))
            except Unwritable as still:
                raise Outage(str(still)) from still
        _log.error(
            "%s is a dead letter on %s after attempt %d: %s",
            record.place,
            topic,
            copies.delivery(as_it_is).attempt,
            fate.error,
        )
        return Placed("dead_letter")


def _milliseconds(wait: timedelta) -> int:
    return round(wait.total_seconds() * 1000)
