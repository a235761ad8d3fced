"""The records that a row's verdict sends out, and where to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from dedup.policies import Failed, Handled, Identity, R
from dedup.results import Again, Dead, Done, Keep, Output, Retry
from outbox import envelope
from outbox.envelope import Delivery, Pair, Record
from outbox.errors import InvalidEvent
from outbox.event import Event
from spark_jobs.backoff import Backoff

# A header must not make a record too large for the topic that is there for records in trouble.
_ERROR_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Where records go. Never taken from a record."""

    output: str
    retry: str
    dead_letter: str


class Outgoing(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Pair]
    timestamp: int
    """In milliseconds; 0: when it is written."""
    origin: Record
    """The record it comes from."""


Encoded: TypeAlias = tuple[bytes | None, bytes | None, list[Pair]]
"""Key, value and headers of an output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Turns the verdict on a record into the records to write."""

    topics: Topics
    backoff: Backoff
    now: int
    """Wall clock of the batch, in milliseconds."""

    def route(
        self,
        verdict: Handled[R] | Failed[R],
        record: Record,
        identity: Identity,
        outputs: Sequence[Encoded],
    ) -> list[Outgoing]:
        """Return the records to write for `record`; `outputs` are those of its handler."""
        match verdict:
            case Handled(_, result):
                return self._handled(result, record, identity, outputs)
            case Failed(_, result):
                return [self._failed(result, record, identity)]

    def _handled(
        self, result: Done | Again, record: Record, identity: Identity, outputs: Sequence[Encoded]
    ) -> list[Outgoing]:
        match result:
            case Again(after):
                return [self._round(record, identity, after)]
            case Done(None):
                return [Outgoing(self.topics.output, *_content(record), record)]
            case Done():
                time = record.timestamp
                return [Outgoing(self.topics.output, *each, time, record) for each in outputs]

    def _round(self, record: Record, identity: Identity, after: timedelta) -> Outgoing:
        state = envelope.retried(
            record, now=self.now, not_before=self._at(after), error="", failed=False
        )
        return self._aside(self.topics.retry, record, identity, replace(state, error=None))

    def _failed(self, result: Retry | Dead, record: Record, identity: Identity) -> Outgoing:
        before = _delivery(record)
        if isinstance(result, Dead) or self.backoff.is_exhausted(before.attempt):
            return self._dead(record, identity, before, result.error)
        after = result.after
        if after is None:
            after = self.backoff.wait(identity, attempt=before.attempt)
        try:
            state = envelope.retried(
                record,
                now=self.now,
                not_before=self._at(after),
                error=result.error[:_ERROR_CHARACTERS],
                failed=True,
            )
        except InvalidEvent as unreadable:
            # Without its attempts and rounds the record could go round for ever.
            return self._dead(record, identity, before, str(unreadable))
        return self._aside(self.topics.retry, record, identity, state)

    def _dead(self, record: Record, identity: Identity, before: Delivery, error: str) -> Outgoing:
        state = replace(
            before,
            first_seen=before.first_seen or self.now,
            not_before=None,
            origin=before.origin or _place(record),
            error=error[:_ERROR_CHARACTERS],
        )
        return self._aside(self.topics.dead_letter, record, identity, state)

    def _aside(self, topic: str, record: Record, identity: Identity, state: Delivery) -> Outgoing:
        """
        Return the copy of `record` that goes to the retry topic or to the dead letters.

        Its timestamp is when it is written: the broker deletes by it, and a record that is old
        when it fails must not be gone before somebody looks. A foreign record gets its id
        written down, for its place changes.
        """
        headers = envelope.with_delivery(record.headers, state)
        if not any(name == envelope.ID and value for name, value in headers):
            headers.insert(0, (envelope.ID, identity[0].encode()))
        return Outgoing(topic, record.key, record.value, headers, 0, record)

    def _at(self, after: timedelta) -> int:
        return self.now + round(after.total_seconds() * 1000)

    def unwritable(self, outgoing: Outgoing, error: str) -> Outgoing:
        """
        Return the dead letter in the place of a record that its topic can never take.

        Without the value and the headers that made it so; its origin says where they are.
        """
        origin = outgoing.origin
        record = origin._replace(value=None, headers=[(envelope.ID, _id(origin).encode())])
        dead = self._dead(record, ("", 0), _delivery(origin), error)
        return dead._replace(origin=origin)


def encode_output(event: Event, number: int, output: Output) -> Encoded:
    """
    Return the record of a handler's `output`, the `number`th of its event.

    It has the event's envelope, with an id of its own that a second evaluation finds again;
    headers that the output names itself come in the place of those.

    Raises:
        InvalidEvent: the value cannot be written.
    """
    told = isinstance(output.value, bytes)  # what bytes hold, only the event's own type can say
    key, value, headers = envelope.encode(
        replace(
            event,
            id=f"{event.id}.{number}",
            key=event.key if isinstance(output.key, Keep) else output.key,
            value=output.value,
            content_type=event.content_type if told else None,
            headers=(),
        )
    )
    own = [
        (name, text.encode() if isinstance(text, str) else text) for name, text in output.headers
    ]
    names = {name for name, _ in own}
    return key, value, [pair for pair in headers if pair[0] not in names] + own


def _content(record: Record) -> tuple[bytes | None, bytes | None, list[Pair], int]:
    return record.key, record.value, list(record.headers), record.timestamp


def _delivery(record: Record) -> Delivery:
    try:
        return envelope.delivery(record)
    except InvalidEvent:
        return Delivery()


def _id(record: Record) -> str:
    try:
        return envelope.event_id(record)
    except InvalidEvent:
        return _place(record)


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"
