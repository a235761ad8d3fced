"""
Compare the topics of the first job with their expected contents.

The rule, once more and in plain Python: each event with a known departure counts once, whatever
batches its duplicates come in. An event that cannot be published goes to the retry topic or to the
dead letters. A record on the retry topic comes back, once, unchanged.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dovecote.demo.check.records import Record
from dovecote.demo.departures import Impossible, Movement, Unconfirmed, judge

Likeness: TypeAlias = tuple[str | None, ...]
"""The parts of a record in which an expected one and a found one must agree."""


class Topics(NamedTuple):
    """The records in the job's output topics; those that came back are in its input."""

    departures: Sequence[Record]
    arrivals: Sequence[Record]
    retry: Sequence[Record]
    dead_letter: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """Differences between the job's topics and the expected ones."""

    expected: int
    """Departures and arrivals."""

    got: int
    wrong: int
    """Records that are missing, or not expected, in any topic."""

    retries: int
    came_back: int
    dead_letters: int
    duplicates: int
    """Records of the input that counted for nothing, because their event had counted before."""

    notes: tuple[str, ...] = ()
    """The differences, in words."""


def compare(records: Iterable[Record], topics: Topics) -> Deduplicated:
    """Compare `topics` with the expected results of `records`, the job's input in order."""
    outcome = _Outcome()
    came_back = []
    for record in records:
        outcome.add(record)
        if record.round:
            came_back.append(record)
    wanted = {
        "departures": (outcome.departures, map(_as_output, topics.departures)),
        "arrivals": (outcome.arrivals, map(_as_output, topics.arrivals)),
        "retry": (outcome.retry, map(_as_failure, topics.retry)),
        "dead letters": (outcome.dead_letter, map(_as_failure, topics.dead_letter)),
        "what came back": (Counter(map(_as_failure, topics.retry)), map(_as_failure, came_back)),
    }
    notes: list[str] = []
    for name, (expected, there) in wanted.items():
        got = Counter(there)
        notes += [f"{name}: missing {likeness}" for likeness in (expected - got).elements()]
        notes += [f"{name}: unexpected {likeness}" for likeness in (got - expected).elements()]
    return Deduplicated(
        expected=outcome.departures.total() + outcome.arrivals.total(),
        got=len(topics.departures) + len(topics.arrivals),
        wrong=len(notes),
        retries=len(topics.retry),
        came_back=len(came_back),
        dead_letters=len(topics.dead_letter),
        duplicates=outcome.duplicates,
        notes=tuple(notes),
    )


class _Outcome:
    """The expected records in the job's topics."""

    def __init__(self) -> None:
        self.departures: Counter[Likeness] = Counter()
        self.arrivals: Counter[Likeness] = Counter()
        self.retry: Counter[Likeness] = Counter()
        self.dead_letter: Counter[Likeness] = Counter()
        self.duplicates = 0
        self._taken: set[tuple[str, int]] = set()

    def add(self, record: Record) -> None:
        """Apply the rule to one record."""
        mark = record.id, record.round
        if mark in self._taken:
            self.duplicates += 1
            return
        self._taken.add(mark)
        if record.fields["departure_delay"] is None:
            return
        match judge(record.type, record.fields, at=record.at, attempt=record.attempt):
            case Movement(value):
                topic = self.arrivals if record.type == "FlightArrived" else self.departures
                topic[_output_of(record, value)] += 1
            case Unconfirmed(error):
                self.retry[_failure_of(record, error, waits=True)] += 1
            case Impossible(error):
                self.dead_letter[_failure_of(record, error, waits=False)] += 1


def _output_of(record: Record, value: dict[str, object]) -> Likeness:
    """Return the output: its own value, and the event's id with the output's number."""
    return (record.key, f"{record.id}.0", record.type, _canonical(value))


def _as_output(record: Record) -> Likeness:
    return (record.key, record.id, record.type, _canonical(record.fields))


def _failure_of(record: Record, error: str, *, waits: bool) -> Likeness:
    """
    Return the copy in the retry topic or the dead letters: the event unchanged, and the reason.
    """
    return (
        record.key,
        record.id,
        record.type,
        record.value.decode(),
        str(record.attempt + waits),
        str(record.round + waits),
        error,
        record.headers.get("dovecote_origin", record.place),
        "waits" if waits else "for good",
    )


def _as_failure(record: Record) -> Likeness:
    headers = record.headers
    return (
        record.key,
        record.id,
        record.type,
        record.value.decode(),
        str(record.attempt),
        str(record.round),
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
