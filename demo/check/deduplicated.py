"""
The job's three topics against what first match makes of each micro-batch.

The rule, once more and in plain Python: of a batch's records of one flight, in order, the first
that knows the departure and can be published wins; what cannot be published goes to the retry
topic or to the dead letters, and the next one is tried; what comes after the winner is skipped.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from demo.check.batches import miscounted, split
from demo.check.records import Counts, Record, Spark
from demo.departures import Departure, Impossible, Unconfirmed, judge

Likeness: TypeAlias = tuple[str | None, ...]
"""What must be the same about a record that was expected and one that was found."""


class Topics(NamedTuple):
    """The records of the topics that the job writes."""

    output: Sequence[Record]
    retry: Sequence[Record]
    dead_letter: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """How the job's topics compare with what should be in them."""

    expected: int
    """Winners."""

    got: int
    """Records in the output topic."""

    wrong: int
    """
    Records that are missing, or not expected, in any of the three topics; records whose batch
    the markers and Spark's log do not agree on; numbers in markers that are not so.
    """

    retries: int
    dead_letters: int
    batches: int
    counts: Counts
    notes: tuple[str, ...] = ()
    """What is wrong, in words."""


def compare(records: Sequence[Record], spark: Spark, topics: Topics) -> Deduplicated:
    """Compare `topics` with what first match makes of `records`, the input, batch by batch."""
    inputs = split(records, spark)
    outcome = _Outcome()
    notes = list(inputs.notes)
    for number, batch in inputs.records.items():
        counted = outcome.add(batch)
        notes += miscounted(number, spark.markers, counted)
    wanted = (outcome.output, outcome.retry, outcome.dead_letter)
    found = (
        Counter(map(_as_output, topics.output)),
        Counter(map(_as_failure, topics.retry)),
        Counter(map(_as_failure, topics.dead_letter)),
    )
    for name, expected, got in zip(Topics._fields, wanted, found, strict=True):
        notes += [f"{name}: missing {likeness}" for likeness in (expected - got).elements()]
        notes += [f"{name}: unexpected {likeness}" for likeness in (got - expected).elements()]
    return Deduplicated(
        expected=outcome.output.total(),
        got=len(topics.output),
        wrong=len(notes),
        retries=len(topics.retry),
        dead_letters=len(topics.dead_letter),
        batches=sum(1 for batch in inputs.records.values() if batch),
        counts=outcome.counts,
        notes=tuple(notes),
    )


class _Outcome:
    """What must be in the job's topics after all batches."""

    def __init__(self) -> None:
        self.output: Counter[Likeness] = Counter()
        self.retry: Counter[Likeness] = Counter()
        self.dead_letter: Counter[Likeness] = Counter()
        self.counts = Counts()

    def add(self, batch: Iterable[Record]) -> Counts:
        """Apply the rule to one batch; return what became of its records."""
        flights: dict[str | None, list[Record]] = {}
        for record in batch:
            flights.setdefault(record.key, []).append(record)
        became = Counter(kind for flight in flights.values() for kind in self._settle(flight))
        counted = Counts(rows=became.total(), **became)
        self.counts = Counts.total([self.counts, counted])
        return counted

    def _settle(self, flight: Iterable[Record]) -> Iterable[str]:
        winner: Record | None = None
        for record in flight:
            if winner is not None:
                yield "duplicate" if record.id == winner.id else "superseded"
                continue
            if record.fields["departure_delay"] is None:
                yield "filtered"
                continue
            match judge(record.type, record.fields):
                case Departure(value):
                    winner = record
                    self.output[_output_of(record, value)] += 1
                    yield "handled"
                case Unconfirmed(error):
                    self.retry[_failure_of(record, error, attempt=2, round_=1, waits=True)] += 1
                    yield "retried"
                case Impossible(error):
                    failure = _failure_of(record, error, attempt=1, round_=0, waits=False)
                    self.dead_letter[failure] += 1
                    yield "dead"


def _output_of(record: Record, value: dict[str, object]) -> Likeness:
    """Return the output: its own value, and the event's id with the output's number."""
    return (record.key, f"{record.id}.0", record.type, _canonical(value))


def _as_output(record: Record) -> Likeness:
    return (record.key, record.id, record.type, _canonical(record.fields))


def _failure_of(record: Record, error: str, *, attempt: int, round_: int, waits: bool) -> Likeness:
    """Return the copy in the retry topic or the dead letters: the event as it was, and why."""
    return (
        record.key,
        record.id,
        record.type,
        record.value.decode(),
        str(attempt),
        str(round_),
        error,
        record.place,
        "waits" if waits else "for good",
    )


def _as_failure(record: Record) -> Likeness:
    headers = record.headers
    return (
        record.key,
        record.id,
        record.type,
        record.value.decode(),
        headers.get("dovecote_attempt"),
        headers.get("dovecote_round"),
        headers.get("dovecote_error"),
        headers.get("dovecote_origin"),
        _wait(headers.get("dovecote_first_seen"), headers.get("dovecote_not_before")),
    )


def _wait(first_seen: str | None, not_before: str | None) -> str:
    if first_seen is None:
        return "never seen"
    if not_before is None:
        return "for good"
    return "waits" if int(not_before) > int(first_seen) else "does not wait"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)
