"""Set aside records that were not handled to their end: hold them, retry them, or give them up."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from dedup.retries import copies, storm
from dedup.retries.aside import Held, Outage, Partition, Placed, Unfinished
from dedup.retries.copies import Copy, Unwritable
from dedup.retries.due import DueTimes, wait
from dedup.retries.fate import DeadLetter, Later, decide
from dedup.retries.held_states import Forgetful, NotKept, Place, State, States, is_of
from dedup.retries.plan import Plan
from dedup.rules.identity import stored
from dedup.rules.policies.decode import Misfit, Undecodable
from dedup.rules.policies.results import Dead, Result, Retry
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from dedup.serving.direct import Begin, BeginsRecords, Slot
from dovecote.process.rarely import Rarely
from outbox import envelope
from outbox.envelope import Delivery
from outbox.errors import InvalidEvent
from outbox.timestamps import milliseconds

_log = logging.getLogger("dovecote.consumer.retries")

_rarely = Rarely(_log)

_UNREADABLE = (Undecodable, InvalidEvent)

R = TypeVar("R", bound=Record)


class Sends(Protocol):
    """Writes a copy to a topic: `Letters`, or a list in a test."""

    def send(self, topic: str, copy: Copy) -> None: ...


class MakesSpans(Protocol):
    """Makes the span of a copy that is set aside."""

    def setting_aside(
        self, record: Record, topic: str, *, outcome: str, attempt: int, reason: str
    ) -> AbstractContextManager[None]: ...


def _now() -> int:
    return time.time_ns() // 1_000_000


def _nothing() -> None:
    """Take no note of a failure."""


class Retries:
    """
    The `Aside` of a consumer, and the wrapper of its handler.

    A held record is handled again with its history in its headers, just like one that comes back
    from a retry topic.
    """

    def __init__(
        self,
        plan: Plan,
        letters: Sends,
        *,
        states: States | None = None,
        group: str | None = None,
        spans: MakesSpans | None = None,
        now: Callable[[], int] = _now,
        failed: Callable[[], None] = _nothing,
        waits: DueTimes | None = None,
    ) -> None:
        """Hold nothing yet; `failed` is called for each attempt that failed."""
        self.plan, self._failed, self._waits = plan, failed, waits or DueTimes()
        self._letters, self._group, self._now = letters, group, now
        self._states, self._spans = states or Forgetful(), spans
        self._held: dict[Place, State] = {}
        self.retry_topics = frozenset(tier.topic for tier in plan.tiers)
        """Topics that hold copies with a history of ours."""
        self.written = self.retry_topics | ({plan.dead_letters} if plan.dead_letters else set())
        """All topics that it writes to."""

    def handling(self, handle: Callable[[Record], Any]) -> Callable[[Record], Any]:
        """
        Return `handle` with exceptions as results, and held records with their present history.

        An async handler stays async.
        """
        held, limit = self._held, self.plan.hop_limit
        if is_awaited(handle):

            async def handler_awaited(record: Record) -> Result | None:
                if limit is not None and (refused := self._refused(record)) is not None:
                    return refused
                try:
                    result: Result | None = await handle(self.as_it_is(record) if held else record)
                except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
                    return self._result(error)
                return result

            return handler_awaited

        def handler(record: Record) -> Result | None:
            if limit is not None and (refused := self._refused(record)) is not None:
                return refused
            try:
                result: Result | None = handle(self.as_it_is(record) if held else record)
            except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
                return self._result(error)
            return result

        return handler

    def beginning(self, begin: Begin) -> BeginsRecords:
        """Return what begins the records that `begin` does, if they have no history here."""
        return _New(self._held, begin, self._result)

    def handling_batch(self, handle: Callable[[list[Record]], Any]) -> Callable[..., Any]:
        """As `handling`, for several records; an exception that it raises for one is a result."""
        if is_awaited(handle):

            async def handler_awaited(records: Sequence[Record]) -> Any:  # noqa: ANN401  # its answer
                taken, refused = self._taken(records)
                try:
                    return _merged(refused, await handle(taken) if taken else None)
                except Exception as error:
                    if len(records) > 1:
                        raise  # records are retried one by one to find the one at fault
                    return [self._result(error)]

            return handler_awaited

        def handler(records: Sequence[Record]) -> Any:  # noqa: ANN401  # its answer
            taken, refused = self._taken(records)
            try:
                return _merged(refused, handle(taken) if taken else None)
            except Exception as error:
                if len(records) > 1:
                    raise  # records are retried one by one to find the one at fault
                return [self._result(error)]

        return handler

    def _result(self, error: Exception) -> Result:
        # It would not fit the next time either.
        return (
            Dead(str(error)) if isinstance(error, Misfit) else self.plan.exceptions.result(error)
        )

    def _taken(self, records: Sequence[Record]) -> tuple[list[Record], list[Dead | None]]:
        """
        Return the records to handle, with their present history, and why each other one is not.
        """
        refused = [self._refused(record) for record in records]
        taken = [
            self.as_it_is(record)
            for record, no in zip(records, refused, strict=True)
            if no is None
        ]
        return taken, refused

    def _refused(self, record: Record) -> Dead | None:
        told = storm.refusal(record, self.plan.hop_limit)
        return None if told is None else Dead(told)

    def as_it_is(self, record: R) -> R:
        """Return `record` with its history on this consumer, if it was held."""
        state = self._state(record)
        if state is None:
            return record
        as_it_is = record._replace(headers=envelope.with_delivery(record.headers, state))
        as_it_is.claim = record.claim
        return as_it_is

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Load the history of held records of the partitions."""
        self._held.update(self._states.load(partitions))

    def early(self, record: Record) -> timedelta | None:
        """Return how long a held record, or one of a retry topic, has to wait until it is due."""
        if not self._held and record.topic not in self.retry_topics:
            return None
        state, written = self._state(record), None
        if state is None and record.topic in self.retry_topics:
            state, written = copies.delivery(record), milliseconds(record.timestamp)
        due = None if state is None else state.not_before
        if due is None:
            return None
        left = self._waits.left(record[:3], due, wait(due, self._now(), written))
        return timedelta(milliseconds=left) if left > 0 else None

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        """Put the record on a retry topic or among the dead letters, or hold its key."""
        if isinstance(result, Retry) and (unreadable := _unreadable(record)) is not None:
            result = Dead(unreadable)
        now, before = self._now(), self._before(record, attempt)
        fate = decide(
            result,
            identity=record.identity._replace(round=before.round),
            delivery=before,
            now=now,
            patience=self.plan.patience,
        )
        as_it_is = record._replace(headers=envelope.with_delivery(record.headers, before))
        if not isinstance(fate, Later) or fate.error is not None:
            self._failed()
        if isinstance(fate, Later):
            try:
                if not self.plan.tiers:
                    return self._hold(record, fate, now)
                return self._recirculate(as_it_is, fate, now)
            except (InvalidEvent, NotKept, Unwritable) as error:
                # It would be so for ever, and its offset would be held back.
                fate = DeadLetter(
                    f"{error}; before that: {fate.error or 'it asked to come again'}"
                )
        return self._bury(record, as_it_is, fate, now)

    def released(self, record: Record) -> None:
        """Forget a record's history."""
        self._states.drop(record)
        self._held.pop(record[:3], None)
        self._waits.end(record[:3])

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Forget held records: they are the next consumer's now."""
        gone = set(partitions)
        self._waits.forget(gone)
        for place in [place for place in self._held if place[:2] in gone]:
            self._held.pop(place, None)

    def _before(self, record: Record, attempt: int) -> Delivery:
        """Return the record's history before this result."""
        # Another consumer may have held it before, which this one's count does not include.
        held = self._state(record)
        before = copies.delivery(record) if held is None else held
        return replace(before, attempt=attempt if held is None else max(attempt, held.attempt))

    def _state(self, record: Record) -> Delivery | None:
        found = self._held.get(record[:3]) if self._held else None
        return found.delivery if found is not None and is_of(found, record) else None

    def _hold(self, record: Record, fate: Later, now: int) -> Held:
        as_it_is = self.as_it_is(record)
        state = envelope.retried(
            as_it_is,
            now=now,
            not_before=fate.due,
            error=copies.cut(fate.error or ""),
            failed=fate.error is not None,
        )
        # By the round, an event that was asked to come again differs from a duplicate of a handled
        # one. A failed event keeps its round.
        rounds = copies.delivery(as_it_is).round + (fate.error is None)
        state = replace(state, round=rounds, error=fate.error)
        # Kept first: if that raises, the caller comes again, and would find its attempt counted.
        self._states.keep(record, state)
        self._held[record[:3]] = State(stored(record.identity), state)
        self._waits.begin(record[:3], fate.due, fate.due - now)
        attempt = copies.delivery(as_it_is).attempt
        return Held(timedelta(milliseconds=fate.due - now), attempt)

    def _recirculate(self, record: Record, fate: Later, now: int) -> Placed:
        copy = copies.retried(record, record.identity, now=now, due=fate.due, error=fate.error)
        tier = self.plan.tier(timedelta(milliseconds=fate.due - now))
        with self._told(record, tier.topic, "retry", fate.error or "it asked to come again"):
            self._letters.send(tier.topic, copy)
        if fate.error is not None:
            _rarely.warning(
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
            # There is no topic for it, so it stays, and each attempt logs that.
            later = Later(now + _milliseconds(self.plan.longest_hold), fate.error)
            try:
                held = self._hold(record, later, now)
            except (InvalidEvent, NotKept):
                held = Held(self.plan.longest_hold)
            return replace(held, given_up=True)
        signed = replace(copies.delivery(as_it_is), group=self._group)
        as_it_is = record._replace(headers=envelope.with_delivery(record.headers, signed))
        copy = copies.dead(as_it_is, as_it_is.identity, now=now, error=fate.error)
        try:
            with self._told(as_it_is, topic, "dead_letter", fate.error):
                self._letters.send(topic, copy)
        except Unwritable as error:
            # Leave out what made it too large; the letter says where the whole record is.
            told = copies.without(str(error), fate.error)
            emptied = copies.emptied(as_it_is, now=now, error=told)
            try:
                with self._told(as_it_is, topic, "dead_letter", told):
                    self._letters.send(topic, emptied)
            except Unwritable as still:
                raise Outage(str(still)) from still
        _rarely.warning(
            "%s is a dead letter on %s after attempt %d: %s",
            record.place,
            topic,
            copies.delivery(as_it_is).attempt,
            fate.error,
        )
        return Placed("dead_letter")

    def _told(
        self, record: Record, topic: str, outcome: str, reason: str
    ) -> AbstractContextManager[None]:
        """Return the span around a copy that is written, if spans are made."""
        if self._spans is None:
            return nullcontext()
        number = copies.delivery(record).attempt
        return self._spans.setting_aside(
            record, topic, outcome=outcome, attempt=number, reason=reason
        )


@dataclass(frozen=True, slots=True)
class _New:
    """Begins records that are not held; a handler takes the others, with their history."""

    held: Mapping[Place, State]
    handle: Begin
    raised: Callable[[Exception], Result]

    def begin(self, record: Record, slot: Slot) -> bool:
        if self.held and record[:3] in self.held:
            return False
        return self.handle(record, slot)


def _merged(refused: Sequence[Dead | None], answers: Any) -> Any:  # noqa: ANN401  # a handler's answer
    """Return the handler's answers, with those of the records that it did not get."""
    if not any(refused):
        return answers
    fits = isinstance(answers, Sequence) and len(answers) == refused.count(None)
    if answers is not None and not fits:
        return answers
    given = iter(answers if answers is not None else [None] * len(refused))
    return [next(given) if no is None else no for no in refused]


def _unreadable(record: Record) -> str | None:
    """Return why a record cannot be read: it will not become readable later."""
    try:
        _ = record.event
    except _UNREADABLE as error:
        return str(error)
    return None


def _milliseconds(wait: timedelta) -> int:
    return round(wait.total_seconds() * 1000)
