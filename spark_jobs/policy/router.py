"""Turn a row's verdict into the records to write, with their topics."""

from collections.abc import Sequence
from dataclasses import dataclass

from dedup.retries import copies
from dedup.retries.backoff import Backoff
from dedup.retries.fate import DeadLetter, Later, decide
from dedup.rules.identity import Identity, identity
from dedup.rules.policies.outputs import Encoded
from dedup.rules.policies.policies import Failed, Handled, R
from dedup.rules.policies.results import Again, Dead, Done, Retry
from outbox.envelope import Pair, Record
from outbox.errors import InvalidEvent
from spark_jobs.sink.outgoing import Outgoing, Topics


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


def _content(record: Record) -> tuple[bytes | None, bytes | None, list[Pair], int]:
    return record.key, record.value, list(record.headers), record.timestamp
