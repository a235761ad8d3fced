"""Read rows and records in step, and keep what is open, so that a killed auditor goes on."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from dovecote.audit.away import Away, away
from dovecote.audit.continuing import Sources, wall
from dovecote.audit.kafka import KAFKA, Topics, unknown_in
from dovecote.audit.outlook import Outlook
from dovecote.audit.parts import Plan
from dovecote.audit.postgres import Window
from dovecote.audit.rules.logged import Place
from dovecote.audit.rules.matching import Bounds, Matcher
from dovecote.audit.rules.promoted import Reach
from dovecote.audit.rules.verdict import Gap
from dovecote.audit.store import Store

if TYPE_CHECKING:
    from dovecote.observe.topics import Topic as Described

_log = logging.getLogger("dovecote.audit")
_ROWS, _RECORDS = 10_000, 5_000
_MOST_OPEN, _MOST_ALONE = 3_000_000, 100_000
_MOST_AHEAD = 20_000
"""While records come, rows that are further ahead of them wait: they would fill the memory."""
_LOOK_EVERY = 10_000
_PARKED_EVERY = 250
_GROWN = 300_000
_SLACK = 600_000


class Comparison:
    """The rows of all outboxes against the records of their topics."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store
        self.matcher = Matcher(
            Bounds(
                late=int(plan.late * 1000),
                foreign_sources=frozenset(plan.foreign_sources),
                order=plan.order,
            )
        )
        self.matcher.placed_from = plan.partitions_since
        self._outboxes = store.load(self.matcher, [each.name for each in plan.outboxes])
        self.topics = Topics(plan.outboxes[0].kafka if plan.outboxes else {})
        self._base = int(store.fact("ran", 0)) + 1
        self._began = time.monotonic()
        self.outlooks = [self._outlook(index) for index in range(len(plan.outboxes))]
        self.gaps: dict[int, list[Gap]] = {
            int(topic): [Gap(*each) for each in gaps]
            for topic, gaps in store.fact("gaps", {}).items()
        }
        self._awaiting: dict[tuple[int, int], Gap] = {}
        self.configs: dict[int, Described] = {}
        self.sources = Sources(plan, store, self.matcher, self.outlooks)
        self.troubles = self.sources.troubles
        self.readers, self.logs = self.sources.readers, self.sources.logs
        self._looked = self._parked_looked = -_LOOK_EVERY
        told = store.fact("parked_at", {})
        self._parked_at: dict[str, str | None] = told if isinstance(told, dict) else {}
        self._records_come = False
        self.unlocked = 0
        """Pairs of a key whose writers took no lock, so that no order is promised."""
        self.events = 0
        """Rows and records that this process has read."""
        for name in plan.topics:
            self.matcher.topic(name)
        for name, places in store.fact("positions", {}).items():
            number = self.matcher.topic(name)
            self.topics.positions[number] = {int(p): offset for p, offset in places.items()}
        self._name_topics()

    def _outlook(self, index: int) -> Outlook:
        told = self.store.fact(f"outlook {self.plan.outboxes[index].name}")
        if told is None:
            return Outlook(is_added=self.store.fact("ran") is not None)
        told["window"] = Window(*told["window"])
        told["blind"] = [tuple(each) for each in told["blind"]]
        told["place"] = Place(**told.get("place", {}))
        told["reach"] = Reach(*told.get("reach", ()))
        told["marks"] = [tuple(each) for each in told.get("marks", [])]
        # The coverage of the last process says nothing of now.
        return Outlook(**told)

    def now(self) -> int:
        """Return for how long auditors have run on this state, in milliseconds."""
        return self._base + int((time.monotonic() - self._began) * 1000)

    def close(self) -> None:
        self.topics.close()
        self.sources.close()

    def guarded(self, name: str, do: Callable[[], Any]) -> Any:  # noqa: ANN401  # whatever it returns
        """Do something with a server; keep its failure as a trouble until it works again."""
        try:
            found = do()
        except Away as error:
            if name not in self.troubles:
                _log.warning("%s", error)
            self.troubles[name] = str(error)
            return None
        if self.troubles.pop(name, None) is not None:
            _log.info("%s: it answers again", name)
        return found

    @property
    def is_full(self) -> bool:
        """Whether so many records are without a row that no more are read before a judgement."""
        return len(self.matcher.records) >= _MOST_ALONE

    def step(self) -> bool:
        """Read the next rows and records; return whether there were any."""
        moved = False
        for index in range(len(self.readers)):
            # A record without a row needs rows beyond the open ones, such as parked ones.
            is_ahead = self._records_come and not self.matcher.records
            most = _MOST_AHEAD if is_ahead else _MOST_OPEN
            is_full = len(self.matcher.rows) + self.store.cold >= most
            part = self.plan.outboxes[index].part
            done = self.guarded(part, partial(self._rows, index, is_full=is_full))
            self.outlooks[index].checked &= done is not None
            moved |= bool(done)
        if self.now() - self._looked > _LOOK_EVERY or len(self.topics.names) < len(
            self.matcher.topics
        ):
            self.look()
            for outlook in self.outlooks:
                outlook.checked = False
        if self.now() - self._parked_looked > _PARKED_EVERY:
            self._look_at_parked()
        if not self.is_full and self.topics.positions:
            self._records_come = bool(
                self.guarded("Kafka reading", lambda: self._records(wait=not moved))
            )
            moved |= self._records_come
        elif not moved:
            time.sleep(0.05)
        return moved

    def _rows(self, index: int, *, is_full: bool) -> bool:
        outlook, reader = self.outlooks[index], self.readers[index]
        if not (outlook.checked and reader.is_connected):
            self.sources.require_same(index)
            outlook.checked = True
        if is_full:
            self.logs[index].stay()
            return False
        if outlook.place.at:
            rows = self.logs[index].read(_ROWS, self.now, wall)
            self.events += self.matcher.take_rows(index, rows, self.now())
            return bool(rows)
        now, at = self.now(), wall()
        fresh = outlook.window.until is None
        if fresh:
            outlook.asked, outlook.asked_wall = now, at
        chunk = reader.read(outlook.window, _ROWS, self.plan.since)
        if chunk.rows:
            outlook.reach = reader.reach()
        self.events += self.matcher.take_rows(index, chunk.rows, now)
        first = outlook.window.since is None
        outlook.window, outlook.complete = chunk.window, chunk.complete
        if chunk.complete:
            self._covered(outlook, index, first=first)
        return bool(chunk.rows)

    def _covered(self, outlook: Outlook, index: int, *, first: bool) -> None:
        retention = int(self.plan.outboxes[index].retention * 1000)
        kept_from = outlook.asked_wall - retention
        if outlook.covered_wall == 0 or first:
            written = max(kept_from, self.plan.since or 0)
            outlook.blind.append((0, outlook.asked_wall, written))
        elif outlook.asked_wall - outlook.covered_wall > retention:
            outlook.blind.append((outlook.covered_wall, outlook.asked_wall, kept_from))
            self.sources.over[f"gap of {self.plan.outboxes[index].part}"] = (
                f"{self.plan.outboxes[index].part}: rows may have come and gone while they were "
                f"not read for {(outlook.asked_wall - outlook.covered_wall) / 1000:.0f} s: keep "
                "them longer with the relay's `retention`"
            )
        outlook.blind = outlook.blind[-100:]
        outlook.covered, outlook.covered_wall = outlook.asked, outlook.asked_wall

    def _records(self, *, wait: bool) -> bool:
        raws = self.topics.read(_RECORDS, 0.1 if wait else 0.0)
        now = self.now()
        if self.topics.trouble and not raws:
            raise away(KAFKA, self.topics.trouble)
        if self._awaiting:
            self._found_after_gaps(raws)
        alone = self.matcher.take_records(raws, now)
        self.events += len(raws)
        if alone and self.store.cold:
            gone = self.matcher.gone_rows
            for number, row in self.store.found_rows(alone):
                if (
                    number in self.matcher.records
                    and (number.to_bytes(16), row.position) not in gone
                ):
                    self.matcher.settle(number, row)
                    self.store.cold -= 1
        if self.topics.resets:
            self._look()
        return bool(raws)

    def _found_after_gaps(self, raws: list[Any]) -> None:
        for raw in raws:
            awaited = self._awaiting.pop((raw[0], raw[1]), None)
            if awaited is not None:
                self.gaps.setdefault(raw[0], []).append(awaited._replace(until=raw[3]))

    def gaps_of(self, topic: int) -> list[Gap]:
        """Return the offsets that were deleted; after some of them no record has come yet."""
        awaited = (gap for place, gap in self._awaiting.items() if place[0] == topic)
        return [*self.gaps.get(topic, ()), *awaited]

    def _name_topics(self) -> None:
        self.topics.names = [each.name for each in self.matcher.topics]
        self.topics.numbers = {name: n for n, name in enumerate(self.topics.names)}

    def look(self) -> None:
        """Look at the topics as they are now, if Kafka answers."""
        self.guarded("Kafka", self._look)

    def _look(self) -> None:
        """Look for topics and partitions that are new, topics made anew, and offsets gone."""
        self._name_topics()
        found = self.topics.describe(self.topics.names)
        changed, resets = bool(self.topics.resets), self.topics.resets
        self.topics.resets = []
        for number, topic in enumerate(self.matcher.topics):
            described = found.get(topic.name)
            trouble = f"topic/{topic.name}"
            if described is None or not described.partitions:
                self.troubles[trouble] = f"topic {topic.name!r} is not there, or we may not see it"
                continue
            unknown = unknown_in(described)
            if unknown:
                self.troubles[trouble] = (
                    f"Kafka does not say where {topic.name}/{unknown[0]} begins and ends: it has "
                    "no leader, or is slow"
                )
            else:
                self.troubles.pop(trouble, None)
            self.configs[number] = described
            changed |= self._placed(number, described)
            for lost in resets:
                if lost.topic == number and lost.partition in self.topics.positions[number]:
                    self._step_over(number, described, lost.partition)
        if changed:
            self.topics.assign()
        self._looked = self.now()

    def _placed(self, number: int, described: "Described") -> bool:
        """Begin with what is new of a topic; return whether anything is."""
        topic, places = self.matcher.topics[number], self.topics.positions.get(number)
        count, is_anew = len(described.partitions), False
        unknown = unknown_in(described)
        if places is not None and topic.id and described.id not in {None, topic.id}:
            is_anew = True
            topic.incarnation, topic.anew_at = topic.incarnation + 1, wall()
            _log.warning("topic %s was made anew: older events are not judged", topic.name)
            self.gaps.pop(number, None)
            places = self.topics.positions[number] = {}
            topic.partitions = 0
        topic.id = described.id or topic.id
        if topic.partitions != count:
            topic.known_since = wall() - _SLACK
            topic.grown_at = wall() + _GROWN if topic.partitions else 0
            topic.partitions = count
        if places is None and unknown:
            return False  # it begins everywhere at one time
        if places is not None and len(places) == count:
            return False
        begun = self._first(number, described) if places is None else {}
        places = self.topics.positions.setdefault(number, {})
        new = [
            each
            for each in described.partitions
            if each.number not in places and each.number not in unknown
        ]
        for each in new:
            first = each.first or 0
            start = begun.get(each.number, first)
            places[each.number] = max(first, each.end or 0) if start < 0 else start
            if start == first and first > 0:
                self._awaiting[number, each.number] = Gap(0, first, wall())
        return is_anew or bool(new)

    def _first(self, number: int, described: "Described") -> dict[int, int]:
        """Return where to begin in a topic of which nothing was read."""
        since = self.plan.since
        logged = [each.begun_wall for each in self.outlooks if each.place.at]
        if any(each.window.since is not None for each in self.outlooks) or logged:
            rows = (
                row.appended
                for row in self.matcher.rows.values()
                if self.matcher.kinds[row.kind].topic == number
            )
            first = min(rows, default=wall()) - _SLACK
            # Nothing of the log is older than its reading, and all of it must have its record.
            since = first if logged else max(since or 0, first)
        if since is None:
            return {}
        numbers = [each.number for each in described.partitions]
        return self.topics.offsets_at(described.name, numbers, since)

    def _step_over(self, number: int, described: "Described", partition: int) -> None:
        """Go on after offsets that are gone."""
        at = self.topics.positions[number][partition]
        each = next((p for p in described.partitions if p.number == partition), None)
        if each is None or each.first is None or each.end is None:
            return
        name = f"{described.name}/{partition}"
        if at > each.end:
            self.sources.over[f"cut {name}"] = (
                f"{name} ends at {each.end} and was read up to {at}: a broker that lacked records "
                "became its leader; see `unclean.leader.election.enable`"
            )
            self.topics.positions[number][partition] = each.end
        elif at < each.first:
            _log.warning(
                "%s: offsets %d to %d were deleted before they were read", name, at, each.first
            )
            self._awaiting[number, partition] = gap = Gap(at, each.first, wall())
            self.gaps.setdefault(number, []).append(gap)
            self.topics.positions[number][partition] = each.first

    def _look_at_parked(self) -> None:
        for index, reader in enumerate(self.readers):
            outbox = self.plan.outboxes[index]
            told = self.guarded(
                f"parked of {outbox.part}",
                partial(reader.parked, self._parked_at.get(outbox.name)),
            )
            if told is None:
                continue
            events, self._parked_at[outbox.name] = told
            numbers = {
                int.from_bytes(id_)
                ^ self.matcher.kinds[self.matcher.kind(index, topic, source)].salt
                for topic, source, id_ in events
            } - self.matcher.parked
            if numbers:
                self.matcher.parked |= numbers
                self.store.park(numbers, self.now())
        self._parked_looked = self.now()

    def ends(self) -> dict[tuple[int, int], int]:
        """Return where the topics end now, open transactions included."""
        self._look()
        return {
            (number, each.number): each.end or 0
            for number, described in self.configs.items()
            for each in described.partitions
        }

    def has_reached(self, ends: dict[tuple[int, int], int]) -> bool:
        """Return whether the topics were read up to there."""
        return all(
            self.topics.positions.get(topic, {}).get(partition, 0) >= end
            for (topic, partition), end in ends.items()
        )

    def commit(self) -> None:
        """Keep all that was read, and what is open of it."""
        facts: dict[str, Any] = {
            "positions": {
                self.topics.names[topic]: places for topic, places in self.topics.positions.items()
            },
            "gaps": {str(n): self.gaps_of(n)[-100:] for n in range(len(self.topics.names))},
            "parked_at": self._parked_at,
            "outboxes": self._outboxes,
        }
        for index, outlook in enumerate(self.outlooks):
            facts[f"outlook {self.plan.outboxes[index].name}"] = {
                "window": outlook.window,
                "identity": outlook.identity,
                "covered_wall": outlook.covered_wall,
                "blind": outlook.blind,
                "asked_wall": outlook.asked_wall,
                "place": asdict(outlook.place),
                "reach": outlook.reach,
                "marks": outlook.marks,
                "passed": outlook.passed,
                "begun_wall": outlook.begun_wall,
                "is_added": outlook.is_added,
            }
        facts["not_audited"], facts["over"] = self.sources.not_audited, self.sources.over
        self.store.commit(self.matcher, facts, self.now())
        for log, outlook in zip(self.logs, self.outlooks, strict=True):
            log.confirm(outlook.place)
