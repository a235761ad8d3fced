"""The letters in the dead-letter topics of consumers and Spark jobs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dedup.kafka.dead_newest import newest, places
from dedup.kafka.dead_topic import DeadTopic
from dedup.retries import letter as letters
from dedup.retries.letter import Which, target
from dedup.retries.where import holds
from dedup.rules import topics as of_topics
from dovecote.observe.dead.order import Before, numbers_of
from dovecote.observe.dead.part import Picked, Verb
from dovecote.observe.dead.shapes import Failure, Fate, Letter, Looked, Selection
from dovecote.observe.rules.counted import counted
from dovecote.observe.sources import ConsumerSource, SparkSource
from dovecote.process.topics import topics
from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.source.topics import matched, patterns, plain

_GONE = "it is not there any more: somebody requeued or dropped it, or the topic let it go"
# So many letters are read at a time: they are in memory together.
_TOGETHER = 10_000


@dataclass(frozen=True, slots=True)
class TopicPart:
    """A consumer or a Spark job, and its dead-letter topic."""

    name: str
    kafka: Mapping[str, str]
    topic: str
    """Empty: it has none."""
    groups: Collection[str | None]
    """Whose letters are meant."""
    retry: str | None
    """Where requeued letters go; None: back to where they come from."""
    consumed: Sequence[str] = ()
    """The topics that a consumer reads, as its settings have them."""
    of_job: Sequence[str] = ()
    """The topics that a job reads, as its settings have them."""

    def newest(
        self, selection: Selection, most: int, before: Before | None
    ) -> Iterator[Letter | Looked | Failure]:
        """Yield its newest letters, and what was looked at."""
        if not self.topic:
            said = f"{self.name} has no dead-letter topic, and gives nothing up"
            yield Looked(self.name, 0, whole=True, said=said)
            return
        bound = None if before is None else before.numbers(self.name)
        found = newest(self._opened(), self.which(selection), most, before=bound)
        for each in found.found:
            yield self._letter(each.letter, each.record)
        back = "" if found.oldest is None else f", back to {found.oldest.isoformat()}"
        rest = "" if found.whole else "; older ones were not looked at: use --since and --until"
        said = f"{counted(found.looked, 'record')} of topic {self.topic}{back}{rest}"
        yield Looked(self.name, found.looked, whole=found.whole, said=said)

    def all(self, selection: Selection) -> Iterator[Picked]:
        """Yield all letters that are meant, in no order."""
        if self.topic:
            for each in places(self._opened(), self.which(selection)):
                yield Picked(self.name, self._place(each.at), each.id, each.source)

    def show(self, part: str, place: str) -> Letter:
        """Return one letter whole."""
        at = self._at(place)
        opened = self._opened()
        found = [] if at is None else opened.letters(Which(places={at}, groups=self.groups))
        if not found:
            msg = f"{part} has no letter at {place!r}: {_GONE}"
            raise DovecoteError(msg)
        return self._letter(found[0], opened.record(found[0]))

    def resolve(self, verb: Verb, places: Sequence[Picked], by: str) -> Iterator[Fate]:
        """Requeue or drop letters, those of a key in their order; yield what became of each."""
        known: dict[letters.At, Picked] = {}
        for each in places:
            at = self._at(each.place)
            if at is None:
                yield Fate(*each[:3], "left", f"its place is none of topic {self.topic!r}")
            else:
                known[at] = each
        opened = self._opened() if known else None
        order = sorted(known)  # that of a key must hold, whatever comes first
        for start in range(0, len(order), _TOGETHER):
            if opened is not None:
                some = {at: known[at] for at in order[start : start + _TOGETHER]}
                yield from self._resolved(opened, verb, some, by)

    def _resolved(
        self, opened: DeadTopic, verb: Verb, known: dict[letters.At, Picked], by: str
    ) -> Iterator[Fate]:
        which = Which(places=known.keys(), groups=self.groups)
        if verb == "drop":
            done, left = opened.resolve(which, "dropped", lambda _: "", by=by)
        else:
            reads = {*self.read()}
            done, left = opened.resolve(
                which,
                "requeued",
                lambda each: target(each, to=self.retry, known=reads),
                read={*reads, self.retry}.__contains__,
                by=by,
            )
        for letter in done:
            yield self._fate(letter, "requeued" if verb == "requeue" else "dropped")
            known.pop(letter.at, None)
        for letter, why in left:
            yield self._fate(letter, "left", why)
            known.pop(letter.at, None)
        for each in known.values():
            yield Fate(*each[:3], "left", _GONE)

    def read(self) -> Collection[str]:
        """Return the topics that letters may be requeued to, because they come from there."""
        return read_topics(self.kafka, self.consumed, self.of_job)

    def which(self, selection: Selection) -> Which:
        """Return the selection as dead-letter topics take it."""
        return which(selection, self.groups)

    def _opened(self) -> DeadTopic:
        if self.topic not in topics(self.kafka):
            msg = (
                f"no topic {self.topic!r} that we may see: create it, or grant this user the "
                "rights to read it"
            )
            raise DovecoteError(msg)
        return DeadTopic(self.kafka, self.topic)

    def _place(self, at: letters.At) -> str:
        return f"{self.topic}/{at[0]}/{at[1]}"

    def _at(self, place: str) -> letters.At | None:
        found = numbers_of(place)
        return found if found is not None and place == self._place(found) else None

    def _fate(self, letter: letters.Letter, what: str, why: str = "") -> Fate:
        return Fate(self.name, self._place(letter.at), letter.id, what, why)  # type: ignore[arg-type]  # one of these words

    def _letter(self, found: letters.Letter, record: Record) -> Letter:
        return Letter(
            part=self.name,
            place=self._place(found.at),
            topic=found.origin_topic,
            key=record.key,
            id=found.id,
            source=found.source,
            type=found.type,
            at=found.died_at,
            reason=found.reason,
            attempts=found.attempts,
            value=record.value,
            size=found.size,
            headers=record.headers,
        )


def of_consumer(name: str, source: ConsumerSource) -> TopicPart:
    """Return a consumer's letters."""
    tiers = source.retries.tiers
    return TopicPart(
        name,
        source.kafka,
        source.retries.dead_letter_topic or "",
        (source.group, None),
        tiers[0].topic if tiers else None,
        consumed=source.topics,
    )


def of_spark(name: str, source: SparkSource) -> TopicPart:
    """Return a job's letters."""
    retry = source.output.get("retry_topic")
    return TopicPart(
        name,
        source.kafka,
        str(source.output.get("dead_letter_topic") or ""),
        (),
        None if retry is None else str(retry),
        of_job=source.source.topics,
    )


def which(selection: Selection, groups: Collection[str | None]) -> Which:
    """
    Return a selection as dead-letter topics take it.

    Raises:
        BadSettings: `where` is no expression.
    """
    return Which(
        ids=selection.ids,
        key=selection.key,
        reason=selection.reason,
        since=selection.since,
        until=selection.until,
        groups=groups,
        topic=selection.topic,
        type=selection.type,
        passes=None if selection.where is None else holds(selection.where),
    )


def read_topics(
    kafka: Mapping[str, str], consumed: Collection[str], of_job: Iterable[str]
) -> Collection[str]:
    """Return the topics that a consumer or a job reads, by what its settings say."""
    entries = tuple(of_job)
    patterned = of_topics.any_pattern(consumed) or patterns(entries)
    there = topics(kafka) if patterned else ()
    return [*of_topics.matched(consumed, there), *plain(entries), *matched(entries, there)]
