"""The parked events of outboxes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from dedup.retries.where import holds
from dovecote.observe.dead.order import Before
from dovecote.observe.dead.part import Picked, Verb
from dovecote.observe.dead.shapes import MOST_SHOWN, Failure, Fate, Letter, Looked, Selection
from dovecote.observe.rules.counted import counted
from dovecote.observe.sources import OutboxSource
from outbox import envelope
from outbox.envelope import Record
from outbox.errors import DovecoteError
from relay.postgres.desk import Content, Desk, ParkedEvent, Which, desk_of
from relay.rules.sharding import Shard, divided

_TOGETHER = 1_000
_MOST_LOOKED = 10_000
_GONE = "it is not parked any more: it was published or dropped"


@dataclass(frozen=True, slots=True)
class ParkedPart:
    """An outbox, in one piece or in shards."""

    name: str
    source: OutboxSource

    def newest(
        self, selection: Selection, most: int, before: Before | None
    ) -> Iterator[Letter | Looked | Failure]:
        """Yield its newest parked events, and what was looked at."""
        looked, whole = 0, True
        for shard in divided(self.source.name, self.source.shards):
            with self._desk(shard) as opened:
                bound = None if before is None else before.text(self.name)
                found = 0
                for event in self._found(opened, selection, most, bound):
                    looked += 1
                    content = self._meant(opened, event, selection)
                    if content is not None:
                        found += 1
                        yield self._letter(shard, event, _cut(content))
                    if found >= most:
                        break
                    if looked >= _MOST_LOOKED:
                        whole = False
                        break
        rest = "" if whole else "; older ones were not looked at: use --since and --until"
        said = f"{counted(looked, 'parked event')} of outbox {self.source.name}{rest}"
        yield Looked(self.name, looked, whole, said)

    def all(self, selection: Selection) -> Iterator[Picked]:
        """Yield all parked events that are meant."""
        for shard in divided(self.source.name, self.source.shards):
            with self._desk(shard) as opened:
                for event in self._found(opened, selection, _TOGETHER, None):
                    if self._meant(opened, event, selection, lazily=True) is not None:
                        yield Picked(self.name, _place(shard, event.id), event.id, event.source)

    def show(self, part: str, place: str) -> Letter:
        """Return one parked event whole."""
        for shard, ids in self._by_shard([place]).items():
            with self._desk(shard) as opened:
                for event in opened.events(Which(ids), 1):
                    content = opened.content(event.number)
                    if content is not None:
                        return self._letter(shard, event, content)
        msg = f"{part} has no parked event at {place!r}: {_GONE}"
        raise DovecoteError(msg)

    def resolve(self, verb: Verb, places: Sequence[Picked], by: str) -> Iterator[Fate]:  # noqa: ARG002  # the relay keeps no names
        """Ask the relay to publish or delete parked events, and yield what became of each."""
        known = {each.place: each for each in places}
        shards = self._by_shard(known)
        for shard, ids in shards.items():
            with self._desk(shard) as opened:
                for at in range(0, len(ids), _TOGETHER):
                    some = ids[at : at + _TOGETHER]
                    there = {each.id for each in opened.events(Which(some), 10 * len(some))}
                    if there:
                        opened.ask(verb, Which(sorted(there)))
                    for id_ in some:
                        place = _place(shard, id_)
                        chosen = known.pop(place, None)
                        named = Fate(self.name, place, chosen.id if chosen else id_, "asked")
                        yield named if id_ in there else named._replace(what="left", why=_GONE)
        for each in known.values():
            yield Fate(*each[:3], "left", f"its place is none of outbox {self.source.name!r}")

    @contextmanager
    def _desk(self, shard: Shard) -> Iterator[Desk]:
        with desk_of(self.source.dsn, self.source.schema_name, shard) as opened:
            yield opened

    def _found(
        self, opened: Desk, selection: Selection, most: int, before: tuple[datetime, str] | None
    ) -> Iterator[ParkedEvent]:
        """Yield parked events that may be meant, newest first."""
        ids = [each for each in map(_uuid, selection.ids) if each is not None]
        if selection.ids and not ids:
            return
        which = Which(
            ids,
            selection.topic,
            selection.key,
            selection.type,
            selection.reason,
            selection.since,
            selection.until,
        )
        while True:
            found = opened.newest(which, most, before)
            yield from found
            if len(found) < most:
                return
            before = found[-1].parked_at, found[-1].id

    def _meant(
        self, opened: Desk, event: ParkedEvent, selection: Selection, *, lazily: bool = False
    ) -> Content | None:
        """Return the content of an event; None: it is not meant, or not parked any more."""
        named = {event.id, f"{event.id}@{event.source}"}
        if selection.ids and named.isdisjoint(selection.ids):
            return None
        if selection.where is None and lazily:
            return Content(None, [])
        content = opened.content(event.number)
        if content is None or selection.where is None:
            return content
        return content if holds(selection.where)(_record(event, content)) else None

    def _by_shard(self, places: Sequence[str] | dict[str, Picked]) -> dict[Shard, list[str]]:
        """Return the ids that places name, by the shard."""
        shards = {each.name: each for each in divided(self.source.name, self.source.shards)}
        found: dict[Shard, list[str]] = {}
        for place in places:
            name, _, id_ = place.rpartition("/")
            if name in shards and _uuid(id_) == id_:
                found.setdefault(shards[name], []).append(id_)
        return found

    def _letter(self, shard: Shard, event: ParkedEvent, content: Content) -> Letter:
        return Letter(
            part=self.name,
            place=_place(shard, event.id),
            topic=event.topic,
            key=event.key,
            id=event.id,
            source=event.source,
            type=event.type,
            at=event.parked_at.astimezone(UTC),
            reason="after an earlier event of its key" if event.waits else event.reason,
            attempts=event.attempt,
            value=content.value,
            size=event.size or 0,
            headers=content.headers,
        )


def _place(shard: Shard, id_: str) -> str:
    return f"{shard.name}/{id_}"


def _uuid(text: str) -> str | None:
    """Return the UUID in an id or a name, as Postgres writes it."""
    try:
        return str(UUID(text.partition("@")[0]))
    except ValueError:
        return None


def _record(event: ParkedEvent, content: Content) -> Record:
    """Return the record that the relay would make of an event, as far as filters see it."""
    headers = [
        (envelope.ID, event.id.encode()),
        (envelope.SOURCE, event.source.encode()),
        (envelope.TYPE, event.type.encode()),
        (envelope.TIME, envelope.format_time(event.time).encode()),
        *content.headers,
    ]
    at = int(event.parked_at.timestamp() * 1000)
    return Record(event.topic, 0, 0, at, event.key, content.value, headers)


def _cut(content: Content) -> Content:
    value = content.value
    return Content(
        None if value is None else value[:MOST_SHOWN],
        [(name, None if each is None else each[:MOST_SHOWN]) for name, each in content.headers],
    )
