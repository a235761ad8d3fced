"""Compare what a consumer's group has passed with its inbox, retry topics and dead letters."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from dovecote.audit.away import away
from dovecote.audit.continuing import wall
from dovecote.audit.kafka import Topics, unknown_in
from dovecote.audit.parts import Follower
from dovecote.audit.rules import handled as rules
from dovecote.audit.rules.finding import Finding, shown_key
from dovecote.audit.rules.handled import Passed
from dovecote.audit.store import Store
from outbox.errors import DovecoteError
from outbox.postgres.session import connect

if TYPE_CHECKING:
    from dovecote.observe.topics import Topic

_CHUNK = 10_000
_POLLS, _STILL = 40, 20
_AGAIN = 60_000
"""When to look again at a consumer of which something cannot be read, in milliseconds."""


class Following:
    """One consumer: each record that its group has passed is in its inbox, or put aside."""

    def __init__(self, follower: Follower, store: Store, since: int | None, grace: float) -> None:
        self.follower, self._store, self._since = follower, store, since
        self._grace = int(grace * 1000)
        self._topics = Topics(follower.kafka, follower.group)
        self._aside = Topics(follower.kafka)
        self._conn: Connection[TupleRow] | None = None
        self._fact = f"follower {follower.name}"
        told = store.fact(self._fact, {})
        self._checked: dict[str, int] = told.get("checked", {})
        self._read: dict[str, int] = told.get("aside", {})
        self._ids: dict[str, str] = told.get("ids", {})
        """Kafka's own ids of the topics, by which one that was made anew is known."""
        self._begun: set[str] = set(told.get("begun", []))
        self.counts: dict[str, int] = told.get(
            "counts", {"passed": 0, "handled": 0, "aside": 0, "unhandled": 0, "unjudged": 0}
        )
        self.is_behind = False
        """The next look reads on."""
        self.trouble = ""
        """Why not everything can be read; empty: it can."""
        self._again = 0
        names = [*follower.topics, *follower.retries]
        if told.get("names", names) != names:
            store.keep_waiting(follower.part, [])  # they are known by the numbers of their topics

    def close(self) -> None:
        for each in (self._topics, self._aside):
            each.close()
        if self._conn is not None:
            with suppress(psycopg.Error):
                self._conn.close()
            self._conn = None

    def look(self, now: int, *, grace: int | None = None) -> list[Finding]:
        """
        Look at what the group has passed since the last look; return what was not handled.

        Raises:
            Away: Kafka or the inbox does not answer.
        """
        follower = self.follower
        if now < self._again:
            return []
        self.trouble = ""
        names = [*follower.topics, *follower.retries]
        self._name(self._topics, names)
        described = self._described(self._topics, names)
        ends: dict[tuple[int, int], int] = {}
        self._topics.positions = {}
        for number, name in enumerate(names):
            if name not in described:
                continue
            partitions = {each.number: each for each in described[name].partitions}
            committed = self._topics.committed(name, [*partitions])
            fresh = [p for p in committed if f"{name}/{p}" not in self._checked]
            begun = (
                self._topics.offsets_at(name, fresh, self._since) if self._since and fresh else {}
            )
            unknown = unknown_in(described[name])
            for partition, end in committed.items():
                if partition in unknown:
                    self._say(name, partition, end)
                    continue
                first = partitions[partition].first or 0
                start = begun.get(partition, first)
                at = self._checked.setdefault(f"{name}/{partition}", end if start < 0 else start)
                at = self._checked[f"{name}/{partition}"] = max(at, first)
                if at < end:
                    ends[number, partition] = end
                    self._topics.positions.setdefault(number, {})[partition] = at
        records = self._passed(ends, names)
        # A copy that is not read yet may be what an open record waits for.
        may_find = self._read_aside()
        self._again = now + _AGAIN if self.trouble and not self.is_behind else 0
        grace = self._grace if grace is None else grace
        return self._judge(records, names, now, grace if may_find else None)

    def _say(self, topic: str, partition: int, end: int, why: str = "") -> None:
        """Note that a partition cannot be read up to an offset."""
        why = why or "it has no leader, a transaction is open, or offsets are gone"
        self.trouble = f"{self.follower.part}: {topic}/{partition} cannot be read to {end}: {why}"

    def _stopped(
        self, topics: Topics, ends: Mapping[tuple[int, int], int], still: int, why: str
    ) -> bool:
        """Return whether nothing has come for so many polls; note of which partition."""
        if still < _STILL:
            return False
        topic, partition = _behind(topics, ends)[0]
        self._say(topics.names[topic], partition, ends[topic, partition], why)
        return True

    def _described(self, topics: Topics, names: Sequence[str]) -> "dict[str, Topic]":
        described = topics.describe(names)
        for name in topics.hidden:
            # One that is not there has no records, and nothing is known of this one.
            self.trouble = (
                f"{self.follower.part}: topic {name!r} cannot be read: grant `Describe` on it"
            )
        self._note_anew(described)
        return described

    def _note_anew(self, described: "Mapping[str, Topic]") -> None:
        """Begin anew in topics that were made anew: their offsets are others."""
        for name, topic in described.items():
            if topic.id is None or self._ids.setdefault(name, topic.id) == topic.id:
                continue
            self._ids[name] = topic.id
            for known in (self._checked, self._read):
                for place in [each for each in known if each.rpartition("/")[0] == name]:
                    del known[place]
            self._begun = {each for each in self._begun if each.rpartition("/")[0] != name}

    @staticmethod
    def _name(topics: Topics, names: Sequence[str]) -> None:
        topics.names = list(names)
        topics.numbers = {name: number for number, name in enumerate(names)}

    def _passed(self, ends: dict[tuple[int, int], int], names: Sequence[str]) -> list[Passed]:
        """Read the records below the group's offsets, some thousands at a time."""
        found: list[Passed] = []
        self.is_behind = bool(ends)
        if not ends:
            return found
        self._topics.assign()
        count = still = 0
        why = ""
        for _ in range(_POLLS):
            raws = self._topics.read(_CHUNK, 0.5)
            still, why = 0 if raws else still + 1, self._topics.trouble or why
            for raw in raws:
                if raw[2] < ends.get((raw[0], raw[1]), 0):
                    count += 1
                    one = rules.passed(raw, names[raw[0]])
                    if one is not None:
                        found.append(one)
            reached = not _behind(self._topics, ends)
            if reached or count >= _CHUNK:
                self.is_behind = not reached
                break
            if self._stopped(self._topics, ends, still, why):
                self.is_behind = False
                break
        for (topic, partition), end in ends.items():
            at = self._topics.positions[topic][partition]
            self._checked[f"{names[topic]}/{partition}"] = min(at, end)
        self._topics.resets = []  # `first` is asked for at the next look
        return found

    def _read_aside(self) -> bool:
        """Read new copies on retry topics and new dead letters; return whether to their ends."""
        follower = self.follower
        names = [*follower.retries, *([follower.dead] if follower.dead else [])]
        if not names:
            return True
        self._name(self._aside, names)
        described = self._described(self._aside, names)
        self._aside.positions = {
            number: {
                each.number: max(each.first or 0, self._read.get(f"{name}/{each.number}", 0))
                for each in described[name].partitions
                if each.end is not None
            }
            for number, name in enumerate(names)
            if name in described
        }
        ends = {
            (number, each.number): each.end
            for number in self._aside.positions
            for each in described[names[number]].partitions
            if each.end is not None
        }
        self._store.put_aside(self._copies(names, ends))
        for topic, places in self._aside.positions.items():
            for partition, offset in places.items():
                self._read[f"{names[topic]}/{partition}"] = offset
        unknown = [(name, each) for name in described for each in unknown_in(described[name])]
        for name, partition in unknown:
            self._say(name, partition, self._read.get(f"{name}/{partition}", 0))
        is_read = not _behind(self._aside, ends)
        self.is_behind |= not is_read and not self.trouble
        return is_read and not unknown and not self._aside.hidden

    def _copies(
        self, names: Sequence[str], ends: Mapping[tuple[int, int], int]
    ) -> list[tuple[str, str, str, int, bool, int]]:
        """Read copies of records up to these ends, as a store keeps them."""
        follower, topics = self.follower, self._aside
        lines, still, why = [], 0, ""
        if _behind(topics, ends):
            topics.assign()
        for _ in range(_POLLS):
            if not _behind(topics, ends) or self._stopped(topics, ends, still, why):
                break
            raws = topics.read(_CHUNK, 0.5)
            still, why = 0 if raws else still + 1, topics.trouble or why
            for raw in raws:
                one = rules.aside(raw, names[raw[0]])
                if one is not None and one.group in {None, follower.group}:
                    place = f"{names[raw[0]]}/{raw[1]}/{raw[2]}"
                    is_dead = names[raw[0]] == follower.dead
                    lines.append((follower.part, one.id, place, one.round, is_dead, one.at))
        return lines

    def _judge(
        self, records: list[Passed], names: Sequence[str], now: int, grace: int | None
    ) -> list[Finding]:
        """Judge; without a `grace`, what is missing waits on."""
        follower, part = self.follower, self.follower.part
        waiting = self._store.waiting(part)
        ids = {each.id for each in records} | {each.id for each, _ in waiting}
        known = self._handled(ids)
        put_aside: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        for id_, round_, dead in self._store.aside_of(part, ids):
            put_aside[id_].append((round_, dead))
        left = set(rules.missing(records, known, put_aside))
        self.counts["passed"] += len(records)
        self.counts["handled"] += len(records) - len(left)
        forgotten = wall() - int(follower.retention * 900)
        fresh: list[tuple[Passed, int]] = []
        for each in sorted(records, key=lambda one: one[:3]):
            place = f"{names[each.topic]}/{each.partition}"
            if each not in left:
                self._begun.add(place)
            elif place not in self._begun or each.at < forgotten or follower.selective:
                # The group began after these, or skips what it likes.
                self.counts["unjudged"] += 1
            else:
                fresh.append((each, now))
        still = set(rules.missing([each for each, _ in waiting], known, put_aside))
        found = []
        open_: list[tuple[Passed, int]] = []
        for each, seen in [*(one for one in waiting if one[0] in still), *fresh]:
            if grace is not None and now - seen >= grace:
                found.append(self._finding(each, names))
            else:
                open_.append((each, seen))
        self.counts["unhandled"] += len(found)
        self._store.keep_waiting(part, open_)
        self._store.note(
            self._fact,
            {
                "checked": self._checked,
                "aside": self._read,
                "begun": sorted(self._begun),
                "ids": self._ids,
                "counts": self.counts,
                "names": list(names),
            },
        )
        self.waiting = len(open_)
        return found

    waiting = 0

    def _finding(self, each: Passed, names: Sequence[str]) -> Finding:
        topic = names[each.topic]
        return Finding(
            kind="unhandled",
            part=self.follower.part,
            topic=topic,
            id=each.id.partition("@")[0],
            key=shown_key(each.key),
            at=each.at,
            places=(f"{topic}/{each.partition}/{each.offset}",),
            reason=(
                f"group {self.follower.group!r} has passed the record, and neither the inbox nor "
                "its retry topics or dead letters have it"
            ),
        )

    def _handled(self, ids: Iterable[str]) -> set[tuple[str, int]]:
        wanted = list(ids)
        found: set[tuple[str, int]] = set()
        query = sql.SQL("SELECT id, round FROM {} WHERE consumer = %s AND id = ANY (%s)").format(
            sql.Identifier(self.follower.schema, "handled")
        )
        try:
            if self._conn is None or self._conn.closed:
                self._conn = connect(self.follower.dsn, name="dovecote-audit")
            for at in range(0, len(wanted), 2_000):
                rows: Any = self._conn.execute(
                    query, [self.follower.group, wanted[at : at + 2_000]]
                ).fetchall()
                found.update(rows)
        except (psycopg.Error, DovecoteError) as error:
            if self._conn is not None:
                with suppress(psycopg.Error):
                    self._conn.close()
            self._conn = None
            part = f"{self.follower.part}: the inbox"
            raise away(part, error) from error
        return found


def _behind(topics: Topics, ends: Mapping[tuple[int, int], int]) -> list[tuple[int, int]]:
    """Return the topics and partitions that are not read up to these ends."""
    return [(t, p) for (t, p), end in ends.items() if topics.positions[t][p] < end]
