"""The auditor's state in one SQLite file: what it has read, and what is still open, atomically."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from dovecote.audit.rules.finding import Finding
from dovecote.audit.rules.handled import Passed
from dovecote.audit.rules.ids import first_at
from dovecote.audit.rules.matching import Counts, Last, Matcher, Row, Seen, Topic, place_of
from outbox.errors import BadSettings, DovecoteError

T = TypeVar("T")

_FORMAT, _FORMATS = 2, {1, 2}
_CACHE_KILOBYTES = 32_000
_CHUNK = 500
_HOT = 120_000
"""The most open rows in memory; the older ones are on disk alone."""
_MOST_FINDINGS = 10_000
"""The most of a kind in a statement: many of one kind hide none of another."""
_FUTURE = 3_600_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (
    id BLOB, kind INTEGER, position INTEGER, appended INTEGER, digest BLOB, seen INTEGER,
    again INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
    id BLOB, place INTEGER, topic INTEGER, partition INTEGER, "offset" INTEGER, at INTEGER,
    digest BLOB, seen INTEGER, key BLOB, source TEXT, PRIMARY KEY (id, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (id BLOB PRIMARY KEY, place INTEGER, seen INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parked (id BLOB PRIMARY KEY, seen INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS aside (
    part TEXT, id TEXT, place TEXT, round INTEGER, dead INTEGER, at INTEGER,
    PRIMARY KEY (part, id, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unhandled (
    part TEXT, topic INTEGER, partition INTEGER, "offset" INTEGER, at INTEGER, id TEXT,
    round INTEGER, key BLOB, seen INTEGER,
    PRIMARY KEY (part, topic, partition, "offset")) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS keys (
    seq INTEGER PRIMARY KEY, topic INTEGER, key BLOB, partition INTEGER, "offset" INTEGER,
    position INTEGER, seen INTEGER);
CREATE TABLE IF NOT EXISTS findings (
    name TEXT PRIMARY KEY, found INTEGER, stated INTEGER, told TEXT) WITHOUT ROWID;
"""


class Store:
    """
    One file, of one auditor at a time. A `commit` is there whole, or not at all.

    An auditor that is killed goes on from the last commit: it reads again what came after.
    """

    def __init__(self, path: Path | None) -> None:
        """
        Open or make the file; None: a temporary one.

        Raises:
            BadSettings: it cannot be opened, is another's, or another auditor has it.
        """
        self._path = path
        try:
            self._db = sqlite3.connect(
                "" if path is None else str(path), timeout=1.0, isolation_level=None
            )
            # Two auditors would each overwrite what the other has read.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
            self._db.execute("PRAGMA journal_size_limit = 64000000")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            msg = (
                f"the state file {path} cannot be used: {error}; end the other auditor that has "
                "it, or name a file of this one's own in `audit.state`"
            )
            raise BadSettings(msg) from error
        if self.fact("format", _FORMAT) not in _FORMATS:
            msg = f"the state file {path} is of another version: name a new one in `audit.state`"
            raise BadSettings(msg)
        if "again" not in {each[1] for each in self._db.execute("PRAGMA table_info(rows)")}:
            self._db.execute("ALTER TABLE rows ADD COLUMN again INTEGER NOT NULL DEFAULT 0")
        self._key_lines = self._count("keys")
        self.cold = 0
        """Open rows that are on disk alone."""
        self._sweep = 0
        self._unstated = self._counted()

    def close(self) -> None:
        self._db.close()

    def _counted(self) -> Counter[str]:
        """Return how many findings of each kind no statement has."""
        names = self._db.execute("SELECT name FROM findings WHERE stated = 0")
        return Counter(name.partition(" ")[0] for (name,) in names)

    def _count(self, table: str) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608  # a constant

    @property
    def is_lasting(self) -> bool:
        """Whether a later auditor can go on from it."""
        return self._path is not None

    def be_durable(self) -> None:
        """From now on, a commit outlives a power cut: servers forget what is told to be kept."""
        self._db.execute("PRAGMA synchronous = FULL")

    def size(self) -> int:
        """Return how many bytes the file has."""
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * self._db.execute("PRAGMA page_size").fetchone()[0])

    def fact(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  # JSON
        """Return what is noted under a name."""
        found = self._db.execute("SELECT value FROM facts WHERE name = ?", [name]).fetchone()
        return default if found is None else json.loads(found[0])

    def load(self, matcher: Matcher, outboxes: Sequence[str]) -> list[str]:
        """
        Give a matcher what an earlier process had open; return the names of outboxes by number.

        Outboxes that are audited no more come last, and it forgets their rows.
        """
        before, kinds = self.fact("outboxes", [*outboxes]), self.fact("kinds", [])
        before += map(str, range(len(before), 1 + max((each[0] for each in kinds), default=-1)))
        names = [*outboxes, *(each for each in before if each not in outboxes)]
        for told in self.fact("topics", []):
            number = matcher.topic(told["name"])
            matcher.topics[number] = Topic(**{**told, "counts": Counts(**told["counts"])})
        for outbox, topic, source in kinds:
            matcher.kind(names.index(before[outbox]), topic, source)
        if names != before:
            # The order of a key is kept by the number of its outbox.
            self._db.execute("DELETE FROM keys")
            self.drop_rows(
                n for n, each in enumerate(matcher.kinds) if each.outbox >= len(outboxes)
            )
        total = self._count("rows")
        self.cold = max(0, total - _HOT)
        if not self.cold:
            for id_, row in self._rows("ORDER BY max(seen, again), position"):
                if id_ in matcher.rows:
                    matcher.more_rows.setdefault(id_, []).append(row)
                else:
                    matcher.rows[id_] = row
        else:
            self.cold = total
        for id_, _, *rest in self._db.execute("SELECT * FROM records ORDER BY seen, place"):
            number, record = int.from_bytes(id_), Seen(*rest)
            if number in matcher.records:
                matcher.more_records.setdefault(number, []).append(record)
            else:
                matcher.records[number] = record
        matcher.parked = {
            int.from_bytes(each[0]) for each in self._db.execute("SELECT id FROM parked")
        }
        known: dict[tuple[int, bytes], Last] = {}
        for topic_number, key, *last in self._db.execute(
            'SELECT topic, key, partition, "offset", position, seen FROM keys ORDER BY seq'
        ):
            known[topic_number, key] = tuple(last)
        matcher.remember(known)
        matcher.kept = int(self.fact("ran", 0))
        return names

    def _rows(self, rest: str, values: Iterable[Any] = ()) -> Iterator[tuple[int, Row]]:
        for id_, *fields in self._db.execute(
            "SELECT * FROM rows " + rest,  # noqa: S608  # constants
            tuple(values),
        ):
            yield int.from_bytes(id_), Row(*fields)

    def commit(self, matcher: Matcher, facts: Mapping[str, Any], now: int) -> None:
        """Write what has changed since the last commit; `now` is the auditor's running time."""
        with self.whole():
            self._commit(matcher, facts, now)
        matcher.done, matcher.gone_rows, matcher.gone_records = [], set(), set()
        matcher.dirty, matcher.kept = {}, now
        matcher.new_rows, matcher.new_records = [], []
        if len(matcher.rows) > _HOT:
            drop = len(matcher.rows) - _HOT // 2
            for number in [each for each, _ in zip(matcher.rows, range(drop), strict=False)]:
                self.cold += 1 + len(matcher.more_rows.pop(number, ()))
                del matcher.rows[number]

    def _commit(self, matcher: Matcher, facts: Mapping[str, Any], now: int) -> None:
        db = self._db
        if matcher.done:
            db.executemany("INSERT OR REPLACE INTO done VALUES (?, ?, ?)", matcher.done)
        if matcher.gone_rows:
            db.executemany("DELETE FROM rows WHERE id = ? AND position = ?", matcher.gone_rows)
        if matcher.gone_records:
            db.executemany("DELETE FROM records WHERE id = ? AND place = ?", matcher.gone_records)
        db.executemany(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (number.to_bytes(16), *row)
                for number, row in _still(matcher.new_rows, matcher.rows, matcher.more_rows)
            ),
        )
        db.executemany(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (number.to_bytes(16), place_of(record, 0), *record)
                for number, record in _still(
                    matcher.new_records, matcher.records, matcher.more_records
                )
            ),
        )
        self._commit_keys(matcher)
        topics = [asdict(each) for each in matcher.topics]
        kinds = [
            (each.outbox, matcher.topics[each.topic].name, each.source) for each in matcher.kinds
        ]
        told = {**facts, "topics": topics, "kinds": kinds, "ran": now, "format": _FORMAT}
        db.executemany(
            "INSERT OR REPLACE INTO facts VALUES (?, ?)",
            [(name, json.dumps(value)) for name, value in told.items()],
        )

    def _commit_keys(self, matcher: Matcher) -> None:
        known: Iterable[tuple[tuple[int, bytes], Last]] = matcher.dirty.items()
        self._key_lines += len(matcher.dirty)
        if self._key_lines > 3 * matcher.bounds.keys:
            self._db.execute("DELETE FROM keys")
            known = list(matcher.keys())
            self._key_lines = len(known)
        self._db.executemany(
            'INSERT INTO keys (topic, key, partition, "offset", position, seen)'
            " VALUES (?, ?, ?, ?, ?, ?)",
            ((topic, key, *last) for (topic, key), last in known),
        )

    def found_rows(self, numbers: Iterable[int]) -> Iterator[tuple[int, Row]]:
        """Yield the open rows with these ids that are on disk."""
        wanted = [number.to_bytes(16) for number in numbers]
        for at in range(0, len(wanted), _CHUNK):
            some = wanted[at : at + _CHUNK]
            marks = ",".join("?" * len(some))
            yield from list(self._rows(f"WHERE id IN ({marks}) ORDER BY position", some))

    def cold_until(self, due: int, kinds: Iterable[int], most: int) -> list[tuple[int, Row]]:
        """Return open rows of these kinds on disk that are due at this time."""
        some = ",".join(map(str, kinds)) or "NULL"
        rest = f"WHERE seen <= ? AND again <= ? AND kind IN ({some}) LIMIT ?"
        return list(self._rows(rest, (due, due, most)))

    def done_at(self, number: int) -> int | None:
        """Return the place of the record that was matched with this id."""
        found = self._db.execute(
            "SELECT place FROM done WHERE id = ?", [number.to_bytes(16)]
        ).fetchone()
        return None if found is None else int(found[0])

    def forget(self, before: int, now: int, seen: int) -> int:
        """
        Forget matched events whose ids were made before a time; return how many.

        Ids without a time, and those of the future, go once they were seen before `seen`.
        """
        db, top = self._db, (1 << 128) - 1
        gone = db.execute(
            "DELETE FROM done WHERE id IN (SELECT id FROM done WHERE id < ? LIMIT 200000)",
            [first_at(before).to_bytes(16)],
        ).rowcount
        future = first_at(now + _FUTURE)
        width = (top - future) // 256 + 1
        low = future + self._sweep * width
        self._sweep = (self._sweep + 1) % 256
        gone += db.execute(
            "DELETE FROM done WHERE id >= ? AND id < ? AND seen < ?",
            [low.to_bytes(16), min(top, low + width).to_bytes(16), seen],
        ).rowcount
        db.execute("DELETE FROM parked WHERE seen < ?", [seen])
        return gone

    def drop_rows(self, kinds: Iterable[int]) -> None:
        """Forget all open rows of these kinds."""
        self._db.executemany("DELETE FROM rows WHERE kind = ?", [(each,) for each in kinds])
        self.cold = min(self.cold, self._count("rows"))

    def park(self, numbers: Iterable[int], now: int) -> None:
        """Note that events are parked."""
        self._db.executemany(
            "INSERT OR REPLACE INTO parked VALUES (?, ?)", [(n.to_bytes(16), now) for n in numbers]
        )

    def add(self, finding: Finding, now: int) -> bool:
        """Keep a finding; return whether it is new. One that counts replaces the one before."""
        if finding.count > 1 or finding.kind == "late":
            self._db.execute("DELETE FROM findings WHERE name = ?", [finding.name])
            self._unstated = self._counted()
        if self._unstated[finding.kind] >= _MOST_FINDINGS:
            return False
        told = json.dumps(finding.as_json())
        changed = self._db.execute(
            "INSERT OR IGNORE INTO findings VALUES (?, ?, 0, ?)", [finding.name, now, told]
        ).rowcount
        self._unstated[finding.kind] += changed
        return bool(changed)

    def findings(self, *, unstated: bool = False) -> list[dict[str, Any]]:
        """Return the findings; `unstated`: those that no statement has."""
        rest = " WHERE stated = 0" if unstated else ""
        found = self._db.execute(f"SELECT told FROM findings{rest} ORDER BY found, name")  # noqa: S608  # a constant
        return [json.loads(each[0]) for each in found]

    def stated(self) -> None:
        """Note that all findings are in a statement; forget those of the one before."""
        self._db.execute("DELETE FROM findings WHERE stated = 1")
        self._db.execute("UPDATE findings SET stated = 1")
        self._unstated.clear()

    def put_aside(self, lines: Iterable[tuple[str, str, str, int, bool, int]]) -> None:
        """Note copies of records: part, event, place, round, whether it is dead, time."""
        self._db.executemany("INSERT OR IGNORE INTO aside VALUES (?, ?, ?, ?, ?, ?)", lines)

    def aside_of(self, part: str, ids: Iterable[str]) -> Iterator[tuple[str, int, bool]]:
        """Yield event, round, and whether it is dead, of the copies of these events."""
        wanted = list(ids)
        for at in range(0, len(wanted), _CHUNK):
            some = wanted[at : at + _CHUNK]
            marks = ",".join("?" * len(some))
            yield from self._db.execute(
                f"SELECT id, round, dead FROM aside WHERE part = ? AND id IN ({marks})",  # noqa: S608  # marks
                [part, *some],
            )

    def waiting(self, part: str) -> list[tuple[Passed, int]]:
        """Return the records of a consumer that were not handled yet, and since when."""
        found = self._db.execute(
            'SELECT topic, partition, "offset", at, id, round, key, seen FROM unhandled'
            " WHERE part = ?",
            [part],
        )
        return [(Passed(*fields), seen) for *fields, seen in found]

    def keep_waiting(self, part: str, records: Iterable[tuple[Passed, int]]) -> None:
        """Keep these in place of the records that were not handled yet."""
        self._db.execute("DELETE FROM unhandled WHERE part = ?", [part])
        self._db.executemany(
            "INSERT OR REPLACE INTO unhandled VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((part, *each, seen) for each, seen in records),
        )

    def note(self, name: str, value: Any) -> None:  # noqa: ANN401  # JSON
        """Keep something under a name."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", [name, json.dumps(value)])

    def forget_aside(self, before: int) -> None:
        """Forget copies that were written before a time."""
        self._db.execute("DELETE FROM aside WHERE at < ?", [before])

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Write all that the block writes, or nothing of it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have ended it
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        """
        Say what to do if the file fails within the block.

        Raises:
            DovecoteError: it could not be read or written, as on a full disk.
        """
        try:
            yield
        except sqlite3.Error as error:
            msg = f"the state file {self._path or 'in the temporary folder'} cannot be written: "
            msg += f"{error}; make room for it, and start the auditor again: what it kept is whole"
            raise DovecoteError(msg) from error


def _still(
    new: Iterable[int], first: Mapping[int, T], more: Mapping[int, list[T]]
) -> Iterator[tuple[int, T]]:
    """Yield what is still open of what came since the last commit."""
    for number in new:
        if number in first:
            yield number, first[number]
        for each in more.get(number, ()):
            yield number, each
