"""Find events: ask all parts side by side, and put together what they say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dedup.retries.letter import resolved
from dedup.rules.identity import Identity, identity, of_topic
from dedup.rules.unread import Place
from dovecote.observe.find import batches, groups, inboxes, outboxes, outcomes, subscriptions
from dovecote.observe.find.asking import Question, ask
from dovecote.observe.find.matching import fates, matcher
from dovecote.observe.find.rules import plan, standing, telling
from dovecote.observe.find.rules.facts import (
    Copy,
    DeadCopy,
    Facts,
    Parked,
    Row,
    Taker,
    place_of,
    written_at,
)
from dovecote.observe.find.rules.life import Life, LookedAt, PartFailure
from dovecote.observe.find.rules.query import MARGIN, Query, checked, ids, is_of, place, shown
from dovecote.observe.find.searching import Search, Searched, record_at
from dovecote.observe.find.takers import takers
from dovecote.observe.sources import WatchSettings
from outbox.envelope import Record

SECONDS = 20.0
"""How long topics are read at most."""

_ASK_SECONDS = 12.0


def find(
    watch: WatchSettings, query: Query, *, now: datetime | None = None, seconds: float = SECONDS
) -> Life:
    """
    Return the life of the event, or of all events of the key, that `query` names.

    A part that does not answer is named in `failures`, and the others count all the same. Topics
    are read for at most `seconds`.

    Raises:
        BadSettings: the query names nothing that can be looked for.
    """
    at = now or datetime.now(UTC)
    return _Finding(watch, checked(query, at), at, seconds).life()


class _Finding:
    """One search; it is used once."""

    def __init__(self, watch: WatchSettings, query: Query, now: datetime, seconds: float) -> None:
        self._watch, self._query, self._now, self._seconds = watch, query, now, seconds
        self._given = query
        self._readers: list[Taker] = []
        self._kafka: dict[str, Mapping[str, str]] = {}
        """The cluster of each part."""
        self._there: dict[str, list[str]] = {}
        """The topics of each cluster."""
        self._ids: dict[str, dict[str, str]] = {}
        self._facts: dict[tuple[str, str], Facts] = {}
        self._looked: list[LookedAt] = []
        self._failures: list[PartFailure] = []
        self._left_out = 0
        self._topics: dict[str, frozenset[str]] = {}

    def life(self) -> Life:
        """Ask, and tell."""
        self._know()
        self._ask_first()
        self._search()
        self._ask_readers()
        self._ask_outcomes()
        told = [
            telling.one(each, self._readers, self._topics, self._now)
            for each in self._facts.values()
        ]
        last = datetime.max.replace(tzinfo=UTC)
        told.sort(key=lambda each: each.at or last)
        most = self._query.limit if self._query.key is not None else len(told)
        given = self._given
        return Life(
            {
                "id": given.id,
                "key": shown(given.key) if given.key is not None else None,
                "topic": given.topic,
                "since": _text(given.since),
                "until": _text(given.until),
            },
            told[len(told) - min(most, len(told)) :],
            self._looked,
            self._failures,
            self._left_out + max(0, len(told) - most),
        )

    def _know(self) -> None:
        """Take the parts that the file names, and their clusters."""
        found = self._watch.sources
        for reader, kafka in takers(found):
            self._add(reader, kafka)
        for name, outbox in found.outbox.items():
            self._kafka[f"outbox/{name}"] = outbox.kafka

    def _add(self, reader: Taker, kafka: Mapping[str, str]) -> None:
        self._readers.append(reader)
        self._kafka[reader.part] = kafka

    def _ask_first(self) -> None:
        """Ask outboxes for rows, push for its subscriptions, and Kafka for its topics."""
        found = self._watch.sources
        asked: dict[Question, Callable[[], Any]] = {
            (f"outbox/{name}", ""): partial(outboxes.ask, f"outbox/{name}", source, self._query)
            for name, source in found.outbox.items()
        }
        for name, source in found.push.items():
            asked[f"push/{name}", ""] = partial(subscriptions.readers, f"push/{name}", source)
        kafkas = [*self._kafka.values(), *(each.kafka for each in found.push.values())]
        if self._watch.kafka:
            kafkas.append(self._watch.kafka)
        clusters = {_name(each): each for each in kafkas if each}
        for cluster, kafka in clusters.items():
            asked[cluster, ""] = partial(groups.topics_of, kafka)
        answers = ask(asked, _ASK_SECONDS)
        self._failures += answers.failures
        for (part, _), answer in answers.found.items():
            if part in clusters:
                self._there[part], self._ids[part] = answer
            elif isinstance(answer, outboxes.OutboxAnswer):
                self._take_outbox(part, answer)
            else:
                source = found.push[part.removeprefix("push/")]
                for reader in answer:
                    self._add(reader, source.kafka)
        self._topics = {
            each.part: plan.read_by(each, self._there.get(_name(self._kafka[each.part]), ()))
            for each in self._readers
        }

    def _take_outbox(self, part: str, answer: outboxes.OutboxAnswer) -> None:
        self._looked.append(LookedAt(part, self._query.since, self._now))
        self._failures += answer.failures
        for row in answer.rows:
            self._of(row.source, row.id).rows.append(row)
        for parked in answer.parked:
            self._of(parked.source, parked.id).parked.append(parked)
        if not answer.shows_table and not answer.rows and not answer.parked:
            why = (
                "its events are in the write-ahead log, where nothing shows one before it is "
                "published"
            )
            self._failures.append(PartFailure(part, why))

    def _of(self, source: str, id_: str) -> Facts:
        return self._facts.setdefault((source, id_), Facts(id_, source))

    def _search(self) -> None:
        named = place(self._query)
        if named is not None:
            self._take_place(named)
        asked: dict[Question, Callable[[], Searched]] = {}
        for cluster, there in self._there.items():
            readers = [each for each in self._readers if _name(self._kafka[each.part]) == cluster]
            kafka = self._cluster(cluster)
            wanted = plan.targets(
                self._query,
                readers,
                there,
                self._now,
                homes=self._homes(cluster),
                key=self._key(),
            )
            if not wanted:
                continue
            search = Search(
                kafka,
                matcher(self._query, self._alike()),
                seconds=self._seconds,
                most=self._query.limit if self._query.key is not None else 10_000,
                ids=self._ids[cluster],
            )
            asked[cluster, ""] = partial(search.run, wanted)
        answers = ask(asked, self._seconds + _ASK_SECONDS)
        self._failures += answers.failures
        for (cluster, _), found in answers.found.items():
            self._looked += found.looked.values()
            self._failures += found.failures
            self._left_out += found.left_out
            self._take_records(cluster, found.records)

    def _cluster(self, name: str) -> Mapping[str, str]:
        kafkas = [*self._kafka.values(), self._watch.kafka]
        return next(each for each in kafkas if _name(each) == name)

    def _rows(self) -> list[Row | Parked]:
        found: list[Row | Parked] = []
        for each in self._facts.values():
            found += each.rows
            found += each.parked
        return found

    def _homes(self, cluster: str) -> list[str]:
        """Return the topics that outboxes of this cluster name for the event."""
        rows = self._rows()
        return [row.topic for row in rows if _name(self._kafka[row.part]) == cluster]

    def _key(self) -> bytes | None:
        """Return the key of the event, if an outbox has told it."""
        keys = {row.key for row in self._rows()}
        return keys.pop() if len(keys) == 1 and len(self._facts) == 1 else None

    def _alike(self) -> set[str]:
        return {*ids(self._query), *(each.id for each in self._facts.values())}

    def _take_place(self, named: Place) -> None:
        """Look at a place, whose record an id names; go on with the id of the event there."""
        asked: dict[Question, Callable[[], Record | None]] = {}
        for cluster in self._there:
            known = {id_: topic for topic, id_ in self._ids[cluster].items()}
            topic = known.get(named.topic, named.topic)
            kafka = self._cluster(cluster)
            asked[cluster, ""] = partial(record_at, kafka, topic, named.partition, named.offset)
        answers = ask(asked, _ASK_SECONDS)
        self._failures += answers.failures
        self._looked.append(LookedAt(f"topic/{named.topic}", None, self._now))
        for (cluster, _), record in answers.found.items():
            if record is None:
                continue
            whole = of_topic(Record, self._ids[cluster].get(record.topic))(*record)
            found = identity(whole)
            self._of(found.source, found.id).home.append(whole)
            at = written_at(whole)
            if at is not None and self._query.since is None:
                self._query = replace(self._query, since=at - MARGIN)

    def _take_records(self, cluster: str, records: Sequence[Record]) -> None:
        ends = fates(records)
        readers = [each for each in self._readers if _name(self._kafka[each.part]) == cluster]
        aside = {topic for each in readers for topic in (*each.retries, each.dead)}
        results = {topic for each in readers for topic in each.outputs}
        read = {topic for each in readers for topic in self._topics[each.part]}
        for record in records:
            if resolved(record) is not None:
                continue
            found = identity(record)
            if not self._is_wanted(found):
                continue
            facts, topic = self._of(found.source, found.id), record.topic
            if topic not in aside and (topic not in results or topic in read):
                facts.home.append(record)
            for each in readers:
                if topic in each.retries:
                    facts.copies.append(Copy(each.part, record))
                if topic in each.outputs:
                    facts.outputs.append(Copy(each.part, record))
                if topic == each.dead:
                    fate = ends.get(record[:3], ("", None))
                    facts.letters.append(DeadCopy(each.part, record, *fate))

    def _is_wanted(self, found: Identity) -> bool:
        if (found.source, found.id) in self._facts:
            return True
        return is_of(self._query, found.id, found.source, found.name)

    def _ask_readers(self) -> None:
        if not self._facts:
            return
        asked: dict[Question, Callable[[], Any]] = {}
        found = self._watch.sources
        events = [Identity(each.source, each.id) for each in self._facts.values()]
        for reader in self._readers:
            places = self._places(reader)
            kind, _, name = reader.part.partition("/")
            if places and reader.group:
                cluster = _name(self._kafka[reader.part])
                asked[reader.part, "its group"] = partial(
                    groups.ask,
                    self._kafka[reader.part],
                    reader,
                    places,
                    self._ids.get(cluster, {}),
                )
            if places and kind == "spark":
                asked[reader.part, "its batches"] = partial(batches.ask, found.spark[name], places)
            if kind == "consumer" and (inbox := found.consumer[name].inbox) is not None:
                asked[reader.part, "its inbox"] = partial(
                    inboxes.ask, inbox.dsn, inbox.schema_name, reader.group, events
                )
        for name, source in found.push.items():
            asked |= self._of_push(f"push/{name}", source)
        answers = ask(asked, _ASK_SECONDS)
        self._failures += answers.failures
        for failure in answers.failures:
            for facts in self._facts.values():
                facts.unknown.setdefault(failure.part, failure.error)
        for (part, what), answer in answers.found.items():
            self._take_answer(part, what, answer)

    def _ask_outcomes(self) -> None:
        """Ask Spark jobs what became of records that they took, and wrote nowhere."""
        asked: dict[Question, Callable[[], Any]] = {}
        for reader in self._readers:
            if reader.kind != "spark":
                continue
            part, topics_ = reader.part, self._topics[reader.part]
            source = self._watch.sources.spark[part.partition("/")[2]]
            job = outcomes.Job(source, reader, topics_, self._ids.get(_name(source.kafka), {}))
            if not job.is_known:
                continue
            taken = {
                place_of(each): (each, batch)
                for facts in self._facts.values()
                if (each := standing.unwritten(reader, facts, topics_)) is not None
                and (batch := facts.batches.get((part, place_of(each)))) is not None
            }
            if taken:
                asked[part, "what became of it"] = partial(outcomes.ask, job, taken)
        answers = ask(asked, self._seconds + _ASK_SECONDS)
        self._failures += answers.failures
        for (part, _), answer in answers.found.items():
            for facts in self._facts.values():
                facts.outcomes |= {(part, at): each for at, each in answer.items()}

    def _of_push(self, part: str, source: Any) -> dict[Question, Callable[[], Any]]:  # noqa: ANN401  # a source of push
        own = [
            each
            for each in self._readers
            if each.part.startswith(f"{part}/") and self._places(each)
        ]
        if not own:
            return {}
        names = [each.part.removeprefix(f"{part}/") for each in own]
        asked: dict[Question, Callable[[], Any]] = {
            (part, "its requests"): partial(
                subscriptions.requests, source, names, [each.id for each in self._facts.values()]
            )
        }
        if source.dsn:
            for each in own:
                asked[each.part, "what it holds"] = partial(
                    inboxes.held, source.dsn, source.schema_name, each.group
                )
        return asked

    def _places(self, reader: Taker) -> set[Place]:
        topics_ = self._topics[reader.part]
        return {
            place_of(record)
            for each in self._facts.values()
            for record in each.read_by(reader, topics_)
        }

    def _take_answer(self, part: str, what: str, answer: Any) -> None:  # noqa: ANN401  # of several kinds
        every = self._facts.values()
        match what:
            case "its group":
                for facts in every:
                    facts.reaches |= {(part, at): each for at, each in answer.reaches.items()}
                    facts.skips |= {(part, at): each for at, each in answer.skips.items()}
            case "its batches":
                for facts in every:
                    facts.batches |= {(part, at): each for at, each in answer.items()}
            case "its inbox":
                for facts in every:
                    lines = answer.handled.get(Identity(facts.source, facts.id))
                    if lines:
                        facts.handled[part] = lines
                    facts.held |= {(part, at): each for at, each in answer.held.items()}
                self._looked.append(LookedAt(f"{part} (inbox)", None, self._now))
            case "what it holds":
                for facts in every:
                    facts.held |= {(part, at): each for at, each in answer.items()}
            case _:
                self._take_requests(part, answer)

    def _take_requests(self, part: str, answer: Mapping[str, Sequence[Any]]) -> None:
        by_id: dict[str, list[Facts]] = {}
        for facts in self._facts.values():
            by_id.setdefault(facts.id, []).append(facts)
        for subscription, sent in answer.items():
            name = f"{part}/{subscription}"
            for each in sent:
                for facts in by_id.get(each.event, ()):
                    facts.attempts.setdefault(name, []).append(each.attempt)


def _name(kafka: Mapping[str, str]) -> str:
    return f"kafka/{kafka.get('bootstrap.servers', 'no address')}"


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
