"""The result of an operator's step, as one row on its way to the sink."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, repeat
from typing import Any, Self

import msgpack
from pydantic_core import to_json as fast_json

from dedup.retries import copies
from dedup.rules.identity import identity
from outbox import envelope
from outbox.envelope import Pair, Record
from spark_jobs.operators.lines import named
from spark_jobs.operators.reading import OperatorSettings
from spark_jobs.operators.step import (
    Ahead,
    Closed,
    Failed,
    Input,
    Late,
    Made,
    Output,
    Paired,
    Released,
    Session,
    Skipped,
)
from spark_jobs.rows.packets import BucketRows
from spark_jobs.sink.markers import Counts, kind
from spark_jobs.sink.outgoing import Outgoing, Results
from spark_jobs.source.topics import belongs, entry_of
from spark_jobs.stateful.results import Columns, columns_of_closed, digest, of_closed, of_sessions

_MOST_HEADS = 10_000
"""Most keys whose beginning of a result is remembered: a worker lives for months."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTopics:
    """The topics to which an operator's records go. Never taken from a record."""

    output: str
    late: str | None
    dead_letter: str
    back_to: frozenset[str] = frozenset()
    """Topics to which a delayed record returns if it came from there: names and patterns."""
    read: frozenset[str] = frozenset()
    """Topics that the job reads: names and patterns. A record that returned there would loop."""


@dataclass(slots=True)
class Outcome:
    """One bucket's report after a step."""

    bucket: int
    number: int = 0
    """Orders the steps of one bucket in one batch."""
    rows: int = 0
    handled: int = 0
    dead: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    newest: int = 0
    keys: int = 0
    """The number of keys in its state."""
    open: int = 0
    """The number of items in its state that are still to come out."""
    size: int = 0
    """The size of its state in bytes."""
    expired: int = 0
    """Offsets that the topics had deleted before they were read."""
    read: int = 0
    """The size of its packets in bytes."""
    contexts: list[str] = field(default_factory=list)
    """The trace contexts of some of its records, if the job is traced."""
    envelope: list[Pair] = field(default_factory=list)
    """The common headers of all results."""
    outgoing: Any = field(default_factory=list)
    """
    Outgoing records, or the form from which `decode` makes them: a result has its id in place of
    headers, and a record of a window has the reason for firing and its own headers.
    """
    columns: Columns = ()
    """In place of `outgoing`, before `decode`: what becomes of it when it is encoded."""
    told: bytes = b""
    """After `decode`: everything to be written, in its encoded form."""

    def encode(self) -> bytes:
        *fields, outgoing, columns, _ = [getattr(self, name) for name in self.__slots__]
        told = msgpack.packb([self.envelope, columns or _columns(outgoing)])
        data: bytes = msgpack.packb([*fields, [], (), told])
        return data

    @classmethod
    def decode(cls, data: bytes) -> Self:
        found = cls(*msgpack.unpackb(data))
        # Headers must be tuples, and converting lists to tuples takes longer than all the rest.
        envelope, columns = msgpack.unpackb(found.told, use_list=False)
        found.envelope = list(envelope)
        if columns:
            found.outgoing = _outgoing(found.envelope, *columns)
        return found

    def counts(self) -> Counts:
        return Counts(rows=self.rows, handled=self.handled, skipped=self.skipped, dead=self.dead)


class Reporter:
    """Turns outputs into records to write."""

    def __init__(self, settings: OperatorSettings, topics: OperatorTopics, source: str) -> None:
        self._settings, self._topics = settings, topics
        self._source = f"{source}/".encode()
        self._headers: list[Pair] = [
            (envelope.TYPE, f"dovecote.{settings.type}".encode()),
            (envelope.SOURCE, source.encode()),
            (envelope.SPECVERSION, b"1.0"),
            (envelope.CONTENT_TYPE, b"application/json"),
        ]
        # Most keys have several results in a step.
        self._head = lru_cache(_MOST_HEADS)(partial(_head, settings))
        self._saying: Mapping[type, Callable[[Any], tuple[Any, ...]]] = {
            Paired: self._paired,
            Made: self._made,
            Released: self._released,
        }

    def report(
        self, outputs: Iterable[Output], outcome: Outcome, rows: BucketRows, now: int
    ) -> None:
        """Put `outputs` into `outcome`; `rows` has the records that they are about."""
        skipped: Counter[str] = Counter()
        ahead = 0
        late = self._topics.late
        outcome.envelope = self._headers
        match outputs:
            case [Closed() as closed]:  # the usual case
                outcome.handled = len(closed.keys)
                outcome.columns = columns_of_closed(
                    closed, self._settings, self._topics.output, self._source
                )
                return
        outgoing = outcome.outgoing
        for output in self._said(outputs, outgoing):
            match output:
                case Skipped():
                    skipped[kind(output.reason)] += output.events
                case Late(record, reason, _):
                    skipped["late"] += 1
                    if late is not None:
                        outgoing.append((late, *self._aside(record, reason, rows, now)))
                case Ahead(record, reason) if late is not None:
                    ahead += 1
                    outgoing.append((late, *self._aside(record, reason, rows, now)))
                case Failed(record, reason) | Ahead(record, reason):
                    outcome.dead += 1
                    aside = self._aside(record, reason, rows, now)
                    outgoing.append((self._topics.dead_letter, *aside))
        outcome.handled = len(outgoing) - outcome.dead - ahead
        if late is not None:
            outcome.handled -= skipped["late"]
        if ahead:
            skipped["ahead"] = ahead
        outcome.skipped = dict(sorted(skipped.items()))

    def _said(self, outputs: Iterable[Output], outgoing: list[Any]) -> Iterator[Output]:
        """Put results into `outgoing`; yield the other outputs, each in its turn."""
        topic = self._topics.output
        for kind_, run in groupby(outputs, type):
            say = self._saying.get(kind_)
            if kind_ is Session:
                sessions: Any = list(run)
                outgoing += of_sessions(sessions, self._settings, topic, self._source)
            elif kind_ is Closed:
                closed: Any
                for closed in run:
                    outgoing += of_closed(closed, self._settings, topic, self._source)
            elif say is not None:
                outgoing += map(say, run)
            else:
                yield from run

    def _made(self, made: Made) -> tuple[Any, ...]:
        """Return a record with the reason why it exists; a passed record keeps its own content."""
        topic, key, value, headers, time, *why, number, origin, window, _, is_passed = made
        if headers:
            headers = [pair for pair in headers if pair[0] not in envelope.WINDOW]
        if not is_passed:
            bounds = f"{made.reason}/{made.start}/{made.end}/{made.revision}/{number}"
            identity = digest(window, f"{bounds}/{origin}".encode())
            own = {name for name, _ in headers}
            ours = ((envelope.ID, self._source + identity), *self._headers)
            headers = [*(pair for pair in ours if pair[0] not in own), *headers]
        return topic, key, value, (_why(*why), headers), max(time, 0), origin

    def _released(self, output: Released) -> tuple[Any, ...]:
        topic, partition, offset, _, key, value, headers = output.value
        return self._back(output.value), key, value, headers, 0, (topic, partition, offset)

    def _back(self, record: Record) -> str:
        """Return the topic to which a delayed record goes on: its own, if settings list it."""
        topics = self._topics
        if not topics.back_to:
            return topics.output
        origin = (copies.delivery(record).origin or "").partition("/")[0]
        entry = entry_of(origin, topics.back_to)
        if entry is None or (entry != origin and belongs(origin, topics.read)):
            return topics.output
        return origin

    def _paired(self, output: Paired) -> tuple[Any, ...]:
        key, time, fields, sides = output
        value = b"%b%d,%b" % (self._head(key), time, fast_json(fields)[1:])
        topic, offset = next(iter(sides.items()))
        place = (topic, -1, offset if isinstance(offset, int) else offset[0])
        # The id alone: all results share the other headers.
        id_ = self._source + digest(key, str(sides).encode())
        return self._topics.output, key, value, id_, max(time, 0), place

    def _aside(self, record: Input, reason: str, rows: BucketRows, now: int) -> tuple[Any, ...]:
        """Return the fields after the topic for a record that is set aside."""
        whole = record.row if isinstance(record.row, Record) else rows.whole(record.row)
        copy = copies.dead(whole, identity(whole), now=now, error=reason)
        return *copy, 0, (record.topic, record.partition, record.offset)


def _head(settings: OperatorSettings, key: bytes) -> bytes:
    """Return the beginning of a pairing result, up to its time."""
    return fast_json(named(key, settings))[:-1] + b',"ts":'


def unwritable(dead_letter: str, now: int, outgoing: Outgoing, error: str) -> Outgoing:
    """
    Return the dead letter that replaces a record which its topic can never take.

    The letter has the record's value. If its own topic refuses that, it has none, and says where
    the value is.
    """
    origin, error = outgoing.origin, f"{outgoing.topic} refuses it: {error}"
    whole = origin._replace(key=outgoing.key, value=outgoing.value, headers=outgoing.headers)
    if outgoing.topic != dead_letter:
        copy = copies.dead(whole, identity(whole), now=now, error=error)
    else:
        # A record that was set aside or goes on has the value of its origin; a result is nowhere.
        place = origin[:3] if origin.partition >= 0 else None
        told = copies.without(error, copies.delivery(whole).error)
        lacks = copies.left(place, whole.value)
        copy = copies.emptied(origin, now=now, error=told, lacks=lacks)
    if origin.partition < 0:  # a result, which comes from several records
        headers = [pair for pair in copy.headers if pair[0] != envelope.ORIGIN]
        copy = copy._replace(headers=headers)
    return Outgoing(dead_letter, *copy, 0, origin)


def _columns(outgoing: list[Any]) -> list[Any]:
    """Return the records of `Reporter` by columns; one value stands for a column of equal ones."""
    if not outgoing:
        return []
    topics, keys, values, headers, timestamps, places = zip(*outgoing, strict=True)
    sources, *numbers = zip(*places, strict=True)
    return [_one(topics), keys, values, headers, timestamps, _one(sources), *numbers]


def _one(texts: tuple[str, ...]) -> str | tuple[str, ...]:
    return texts[0] if len(set(texts)) == 1 else texts


def _outgoing(common: list[Pair], *columns: Sequence[Any]) -> Sequence[Outgoing]:
    """Return the records in `columns`, which are in the order of the fields from `Reporter`."""
    topics, keys, values, headers, timestamps, sources, partitions, offsets = columns
    topics, sources = _all(topics, len(keys)), _all(sources, len(keys))
    if {bytes}.issuperset(map(type, headers)):
        place = sources, partitions, offsets
        return Results(common, topics, keys, values, headers, timestamps, *place)
    pairs = [
        [(envelope.ID, each), *common] if each.__class__ is bytes else _pairs(each)
        for each in headers
    ]
    none = repeat(None)
    origins = map(
        _record,
        zip(sources, partitions, offsets, timestamps, keys, none, pairs, strict=False),
    )
    rows = zip(topics, keys, values, pairs, timestamps, origins, strict=True)
    return list(map(_row, rows))


def _all(texts: str | Sequence[str], count: int) -> Sequence[str]:
    return [texts] * count if isinstance(texts, str) else texts


# Calls tuple's own constructor; the named tuple's takes three times as long.
_record: Callable[[Iterable[Any]], Record] = partial(tuple.__new__, Record)
_row: Callable[[Iterable[Any]], Outgoing] = partial(tuple.__new__, Outgoing)


def _pairs(headers: tuple[Any, ...]) -> list[Pair]:
    if headers and headers[0].__class__ is bytes:
        why, own = headers
        return [*own, *_headers_of(why)]
    return [*headers]


@lru_cache(maxsize=16)
def _why(reason: str, *numbers: int) -> bytes:
    """Return the values of the headers that all records of a window share."""
    return "/".join((reason, *map(str, numbers))).encode()


@lru_cache(maxsize=16)
def _headers_of(why: bytes) -> tuple[Pair, ...]:
    names = (
        envelope.FIRED,
        envelope.WINDOW_START,
        envelope.WINDOW_END,
        envelope.WINDOW_EVENTS,
        envelope.REVISION,
    )
    return tuple(zip(names, why.split(b"/"), strict=True))
