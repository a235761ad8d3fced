"""Turn a row's verdict into the records to write, with their topics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dedup.retries import copies
from dedup.retries.backoff import Backoff
from dedup.retries.fate import DeadLetter, Later, decide
from dedup.rules.identity import Identity, identity
from dedup.rules.policies.policies import Failed, Handled, R
from dedup.rules.policies.results import Again, Dead, Done, Keep, Output, Retry
from outbox import envelope
from outbox.envelope import Pair, Record
from outbox.errors import InvalidEvent
from outbox.event import Event, headers_of_output
from outbox.tracing.headers import TRACESTATE
from spark_jobs.sink.outgoing import Outgoing, Topics

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
                return [self._aside(result, record, identity)]

    def returned(self, record: Record, identity: Identity) -> Outgoing:
        """Return the record as it is for the retry topic, where our partitioner places its key."""
        try:
            copy = copies.returned(record, identity)
        except InvalidEvent as unreadable:
            copy = copies.dead(record, identity, now=self.now, error=str(unreadable))
            return Outgoing(self.topics.dead_letter, *copy, 0, record)
        return Outgoing(self.topics.retry, *copy, 0, record)

    def _handled(
        self, result: Done | Again, record: Record, identity: Identity, outputs: Sequence[Encoded]
    ) -> list[Outgoing]:
        match result:
            case Again():
                return [self._aside(result, record, identity)]
            case Done(None):
                return [Outgoing(self.topics.of(record.headers), *_content(record), record)]
            case Done():
                time, topic = record.timestamp, self.topics.of
                return [Outgoing(topic(each[2]), *each, time, record) for each in outputs]

    def _aside(self, result: Again | Retry | Dead, record: Record, identity: Identity) -> Outgoing:
        fate = decide(
            result,
            identity=identity,
            delivery=copies.delivery(record),
            now=self.now,
            patience=self.backoff,
        )
        if isinstance(fate, Later):
            try:
                copy = copies.retried(
                    record, identity, now=self.now, due=fate.due, error=fate.error
                )
            except InvalidEvent as unreadable:
                fate = DeadLetter(str(unreadable))
            else:
                return Outgoing(self.topics.retry, *copy, 0, record)
        copy = copies.dead(record, identity, now=self.now, error=fate.error)
        return Outgoing(self.topics.dead_letter, *copy, 0, record)

    def unwritable(self, outgoing: Outgoing, error: str) -> Outgoing:
        """
        Return the dead letter that replaces a record which its topic can never take.

        It is the record that was read. If the dead-letter topic refuses that, the letter lacks the
        value and the headers, and says where they are.
        """
        origin, error = outgoing.origin, f"{outgoing.topic} refuses it: {error}"
        if outgoing.topic == self.topics.dead_letter:
            before = copies.delivery(origin._replace(headers=outgoing.headers)).error
            copy = copies.emptied(origin, now=self.now, error=copies.without(error, before))
        else:
            copy = copies.dead(origin, identity(origin), now=self.now, error=error)
        return Outgoing(self.topics.dead_letter, *copy, 0, origin)


def encode_output(event: Event, number: int, output: Output) -> Encoded:
    """
    Return the record of a handler's `output`, the `number`th of its event.

    It has the event's envelope and trace context. Its id is its own, and the same each time.
    Headers of the output itself replace the envelope's.

    Raises:
        InvalidEvent: the value or a header cannot be written.
    """
    told = isinstance(output.value, bytes)  # only the event's own type describes bytes
    key, value, headers = envelope.encode(
        replace(
            event,
            id=f"{event.id}.{number}",
            key=event.key if isinstance(output.key, Keep) else output.key,
            value=output.value,
            content_type=event.content_type if told else None,
            headers=[pair for pair in event.headers if pair[0] == TRACESTATE],
        )
    )
    own = headers_of_output(output.headers)
    names = {name for name, _ in own}
    return key, value, [*(pair for pair in headers if pair[0] not in names), *own]


def _content(record: Record) -> tuple[bytes | None, bytes | None, list[Pair], int]:
    return record.key, record.value, list(record.headers), record.timestamp
