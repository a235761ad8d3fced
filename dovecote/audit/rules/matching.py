"""Match rows with records as both come, in memory that has a bound."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from dovecote.audit.rules.ids import digest, number_of, partition_of, salt

LOG = 1 << 60
"""Rows that were read from the write-ahead log have positions from here on."""

_LONGEST_KEY = 40
_YEAR_10000 = 253_402_300_800_000
_MOST_SOURCES = 50_000
_COPIES = frozenset({"dovecote_attempt", "dovecote_round", "dovecote_origin", "dovecote_group"})
"""A record with one of these is a copy: requeued, or on its way through retries."""


class Row(NamedTuple):
    """One committed row, as far as it is kept."""

    kind: int
    """The number of its outbox, topic and source."""
    position: int
    appended: int
    """When it was written, by the clock of Postgres, in milliseconds since 1970."""
    digest: bytes
    seen: int
    """When the auditor read it, by the auditor's own running time, in milliseconds."""
    again: int = 0
    """From when on it is to be looked at again."""

    @property
    def due(self) -> int:
        """Since when it can be looked at."""
        return max(self.seen, self.again)


class Seen(NamedTuple):
    """One record without a row, as far as it is kept."""

    topic: int
    partition: int
    offset: int
    at: int
    """The record's timestamp, in milliseconds; 0: it has none."""
    digest: bytes
    seen: int
    key: bytes | None
    source: str


Raw: TypeAlias = tuple[int, int, int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]
"""A record: topic, partition, offset, its time in milliseconds, key, value, headers."""

Read: TypeAlias = tuple[int, int, str, str, bytes, bytes]
"""A row: position, when it was written, topic, source, id, digest."""

Last: TypeAlias = tuple[int, int, int, int]
"""The last record of a key: partition, offset, position of its row, when that row was read."""


class Suspicion(NamedTuple):
    """Something to look at more closely before it is a finding."""

    kind: str
    id: int
    row: Row
    record: Seen
    more: str


@dataclass(slots=True)
class Counts:
    """Counts of one topic."""

    rows: int = 0
    records: int = 0
    matched: int = 0
    copies: int = 0
    foreign: int = 0
    late: int = 0
    latest: int = 0
    """The longest time from commit to record, in milliseconds."""
    repeats: int = 0
    """Records that an outbox that is `at_least_once` published again."""
    dropped: int = 0
    """Events that were parked and that an operator dropped."""
    unjudged: int = 0
    """Rows and records of which too little is known: their counterparts may be deleted."""


@dataclass(slots=True)
class Topic:
    """One topic, as far as it is known."""

    name: str
    partitions: int = 0
    known_since: int = 0
    """Records from this time on are in one of `partitions`."""
    incarnation: int = 0
    counts: Counts = field(default_factory=Counts)
    newest: int = 0
    """The newest row that was matched: when it was written."""
    id: str | None = None
    """Kafka's own id of it."""
    anew_at: int = 0
    """When it was found to be made anew, in milliseconds since 1970."""
    grown_at: int = 0
    """From when on all producers know of partitions that were added."""


class Of(NamedTuple):
    """The outbox, topic and source that many rows have in common."""

    outbox: int
    topic: int
    source: str
    salt: int


class Bounds(NamedTuple):
    """The settings that matching needs."""

    late: int
    keys: int = 120_000
    foreign_sources: frozenset[str] = frozenset()
    order: bool = True


class Matcher:
    """
    The open rows and records, what was matched since the last commit, and the order of keys.

    All of it is plain values; a store keeps what is to outlive the process.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.topics: list[Topic] = []
        self.numbers: dict[str, int] = {}
        self.rows: dict[int, Row] = {}
        self.more_rows: dict[int, list[Row]] = {}
        self.records: dict[int, Seen] = {}
        self.more_records: dict[int, list[Seen]] = {}
        self.done: list[tuple[bytes, int, int]] = []
        self.gone_rows: set[tuple[bytes, int]] = set()
        self.gone_records: set[tuple[bytes, int]] = set()
        self.new_rows: list[int] = []
        self.new_records: list[int] = []
        self.kinds: list[Of] = []
        self._kinds: dict[tuple[int, str, str], int] = {}
        self.suspicions: list[Suspicion] = []
        self.parked: set[int] = set()
        self.late: dict[int, tuple[int, int, Row, Seen]] = {}
        """The latest record of each topic: how late, its id, its row, the record."""
        self.kept = 0
        """Rows and records that were seen up to this time are in the store."""
        self._young: dict[tuple[int, bytes], Last] = {}
        self._old: dict[tuple[int, bytes], Last] = {}
        self.dirty: dict[tuple[int, bytes], Last] = {}
        self._salts: dict[tuple[str, int], int] = {}
        self.placed_from: int | None = None
        """Records from this time on must be in the partition of their key; None: as known."""

    def topic(self, name: str) -> int:
        """Return the number of a topic, a new one if it has none."""
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.topics)
            self.topics.append(Topic(name))
        return number

    def salt(self, source: str, topic: int) -> int:
        """Return the salt of a source in a topic."""
        found = self._salts.get((source, topic))
        if found is None:
            if len(self._salts) > _MOST_SOURCES:
                self._salts.clear()
            found = self._salts[source, topic] = salt(source, self.topics[topic].name)
        return found

    def kind(self, outbox: int, topic: str, source: str) -> int:
        """Return the number of an outbox, topic and source, a new one if they have none."""
        number = self._kinds.get((outbox, topic, source))
        if number is None:
            number = self._kinds[outbox, topic, source] = len(self.kinds)
            its_topic = self.topic(topic)
            self.kinds.append(Of(outbox, its_topic, source, self.salt(source, its_topic)))
        return number

    def take_rows(self, outbox: int, rows: Iterable[Read], now: int) -> int:
        """Take committed rows in the order of their positions; return how many."""
        count = 0
        records, open_rows, kinds = self.records, self.rows, self._kinds
        for position, appended, topic, source, id_, its_digest in rows:
            count += 1
            kind = kinds.get((outbox, topic, source))
            if kind is None:
                kind = self.kind(outbox, topic, source)
            of = self.kinds[kind]
            self.topics[of.topic].counts.rows += 1
            number = int.from_bytes(id_) ^ of.salt
            row = Row(kind, position, appended, its_digest, now)
            if number in records:
                self._matched(number, row, self._pop_record(number))
            elif number in open_rows:
                self.more_rows.setdefault(number, []).append(row)
                self.new_rows.append(number)
            else:
                open_rows[number] = row
                self.new_rows.append(number)
        return count

    def take_records(self, raws: Iterable[Raw], now: int) -> list[int]:
        """Take records in the order of each partition; return the ids of those without a row."""
        alone: list[int] = []
        topics, open_rows, ignored = self.topics, self.rows, self.bounds.foreign_sources
        salts = self._salts
        for topic, partition, offset, at, key, value, headers in raws:
            counts = topics[topic].counts
            counts.records += 1
            named = dict(headers)
            id_ = named.get("ce_id")
            number = None if id_ is None else number_of(id_)
            if number is None:
                counts.foreign += 1
                continue
            if not _COPIES.isdisjoint(named):
                counts.copies += 1
                continue
            # A store keeps it as text; no row has a source that is none.
            source = (named.get("ce_source") or b"").decode(errors="backslashreplace")
            if source in ignored:
                counts.foreign += 1
                continue
            its_salt = salts.get((source, topic))
            if its_salt is None:
                its_salt = self.salt(source, topic)
            number ^= its_salt
            record = Seen(topic, partition, offset, at, digest(key, value), now, key, source)
            if number in open_rows:
                self._matched(number, self._pop_row(number), record)
            else:
                if number in self.records:
                    self.more_records.setdefault(number, []).append(record)
                else:
                    self.records[number] = record
                alone.append(number)
                self.new_records.append(number)
        return alone

    def settle(self, number: int, row: Row) -> None:
        """Match a row from the store with the record that waits for it."""
        self.gone_rows.add((number.to_bytes(16), row.position))
        self._matched(number, row, self._pop_record(number))

    def _pop_row(self, number: int) -> Row:
        row = self.rows.pop(number)
        if row.seen <= self.kept:
            self.gone_rows.add((number.to_bytes(16), row.position))
        if self.more_rows and number in self.more_rows:
            more = self.more_rows[number]
            self.rows[number] = more.pop(0)
            if not more:
                del self.more_rows[number]
        return row

    def _pop_record(self, number: int) -> Seen:
        record = self.records.pop(number)
        if record.seen <= self.kept:
            self.gone_records.add((number.to_bytes(16), place_of(record, 0)))
        if self.more_records and number in self.more_records:
            more = self.more_records[number]
            self.records[number] = more.pop(0)
            if not more:
                del self.more_records[number]
        return record

    def postpone(self, number: int, now: int) -> None:
        """Look at an open row again later."""
        row = self.rows.pop(number)
        self.gone_rows.add((number.to_bytes(16), row.position))
        self.rows[number] = row._replace(again=now)
        self.new_rows.append(number)

    def drop_row(self, number: int) -> Row:
        """Forget an open row, about which all is said."""
        return self._pop_row(number)

    def drop_record(self, number: int) -> Seen:
        """Forget an open record, about which all is said."""
        return self._pop_record(number)

    def _matched(self, number: int, row: Row, record: Seen) -> None:
        of = self.kinds[row.kind]
        topic = self.topics[of.topic]
        counts = topic.counts
        counts.matched += 1
        topic.newest = max(topic.newest, row.appended)
        self.done.append((number.to_bytes(16), place_of(record, topic.incarnation), record.seen))
        if row.digest != record.digest:
            self.suspicions.append(Suspicion("altered", number, row, record, ""))
        late = record.at - row.appended
        counts.latest = max(counts.latest, late)
        if late > self.bounds.late:
            counts.late += 1
            worst = self.late.get(of.topic)
            if worst is None or late > worst[0]:
                self.late[of.topic] = (late, number, row, record)
        if record.key is not None and self.bounds.order:
            self._in_order(number, row, record, record.key)

    def _in_order(self, number: int, row: Row, record: Seen, key: bytes) -> None:
        of = self.kinds[row.kind]
        short = key if len(key) <= _LONGEST_KEY else blake2b(key, digest_size=32).digest()
        topic = self.topics[of.topic]
        name = (of.topic << 16 | (topic.incarnation & 0xFF) << 8 | of.outbox, short)
        if number in self.parked:  # it is requeued after others, if the relay skips
            return
        last = self._young.get(name) or self._old.get(name)
        if last is not None and (last[2] >= LOG) != (row.position >= LOG):
            last = None  # the capture was changed between them: their positions say nothing
        if last is None or last[0] != record.partition:
            self._in_its_place(number, row, record, key)
        elif (record.offset - last[1]) * (row.position - last[2]) < 0:
            more = f"{last[1]} {last[2]} {last[3]}"
            self.suspicions.append(Suspicion("disordered", number, row, record, more))
            if record.offset < last[1]:
                return
        elif record.offset < last[1]:
            return
        if len(self._young) >= self.bounds.keys:
            self._old, self._young = self._young, {}
        self._young[name] = self.dirty[name] = (
            record.partition,
            record.offset,
            row.position,
            row.seen,
        )

    def _in_its_place(self, number: int, row: Row, record: Seen, key: bytes) -> None:
        topic = self.topics[record.topic]
        since = topic.known_since if self.placed_from is None else self.placed_from
        if topic.partitions < 2 or record.at < max(since, topic.grown_at):  # noqa: PLR2004  # one place for all
            return
        if partition_of(key, topic.partitions) != record.partition:
            self.suspicions.append(Suspicion("misplaced", number, row, record, ""))

    def keys(self) -> Iterator[tuple[tuple[int, bytes], Last]]:
        """Yield the last place and position of each key that is remembered, older ones first."""
        yield from self._old.items()
        yield from self._young.items()

    def remember(self, known: Mapping[tuple[int, bytes], Last]) -> None:
        """Take the keys of an earlier process."""
        self._young = dict(known)

    def rows_until(self, due: int) -> Iterator[tuple[int, Row]]:
        """Yield the open rows that are due at this time."""
        return takewhile(lambda each: each[1].due <= due, self.rows.items())

    def records_until(self, seen: int, most: int) -> list[tuple[int, Seen]]:
        """Return the open records that were read up to this time, the first ones."""
        found = takewhile(lambda each: each[1].seen <= seen, self.records.items())
        return [each for each, _ in zip(found, range(most), strict=False)]


_OFFSET_BITS, _PARTITION_BITS = 40, 16


def place_of(record: Seen, incarnation: int) -> int:
    """Return a record's partition and offset, and the topic's incarnation, as one number."""
    within = record.partition << _OFFSET_BITS | record.offset
    return (incarnation & 0x7F) << (_OFFSET_BITS + _PARTITION_BITS) | within


def placed(place: int) -> tuple[int, int, int]:
    """Return the incarnation, partition and offset of a place."""
    within = place & ((1 << (_OFFSET_BITS + _PARTITION_BITS)) - 1)
    return (
        place >> (_OFFSET_BITS + _PARTITION_BITS),
        within >> _OFFSET_BITS,
        within & ((1 << _OFFSET_BITS) - 1),
    )


def milliseconds(timestamp: int) -> int:
    """
    Return a record's timestamp in milliseconds since 1970; 0: the record has none.

    Some producers write microseconds or nanoseconds, which would be years after 9999.
    """
    while timestamp >= _YEAR_10000:
        timestamp //= 1_000
    return max(0, timestamp)
