"""
Compare the events of a restored database with Kafka's. Nothing is asked here.

Every event of the database after the mark is in doubt; the mark is the progress that the database
remembers as durable. Kafka is read from the time of the mark on. An event in doubt that is there
is published. An event that is there and not in doubt is missing in the database.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from relay.rules.row import Key

Ids = dict[bytes, bytes | None]
"""The ids of one topic's events, in the order of the stream, each with its key."""


class Sent(NamedTuple):
    """A record of Kafka, whose event may be missing in the database."""

    id: str
    topic: str
    key: bytes | None
    at: int
    """Its timestamp, in milliseconds since 1970."""


@dataclass(slots=True)
class Doubts:
    """Events of the database that may be in Kafka."""

    by_topic: dict[str, Ids] = field(default_factory=dict)
    parked: dict[str, Ids] = field(default_factory=dict)
    """Events that were not in Kafka in the state in which the database is now."""
    holding: set[bytes] = field(default_factory=set)
    """Parked events that later events of their keys wait for."""

    def topics(self) -> set[str]:
        """Return the topics of the events in doubt."""
        return self.by_topic.keys() | self.parked.keys()

    def add(self, topic: str, id_: str, key: bytes | None) -> None:
        """Put an event into doubt, after all others."""
        self.by_topic.setdefault(topic, {})[UUID(id_).bytes] = key

    def add_parked(self, topic: str, id_: str, key: bytes | None, *, holds: bool) -> None:
        """Put a parked event into doubt."""
        self.parked.setdefault(topic, {})[UUID(id_).bytes] = key
        if holds:
            self.holding.add(UUID(id_).bytes)

    def has(self, topic: str, id_: bytes) -> bool:
        """Return whether an event is in doubt."""
        return id_ in self.by_topic.get(topic, ()) or id_ in self.parked.get(topic, ())


@dataclass(frozen=True, slots=True)
class Account:
    """The differences between a database and Kafka."""

    published: Mapping[str, Collection[bytes]]
    """By topic: events in doubt that are in Kafka."""
    unpublished: Mapping[str, Collection[bytes]]
    """Events in doubt that are not in Kafka."""
    requeued: Collection[bytes]
    """Parked events that are in Kafka."""
    waiting: Collection[bytes]
    """Events in doubt, not in Kafka, that are parked or wait for a parked event."""
    missing: list[Sent]
    """Records in Kafka whose events are not in the database."""

    @property
    def published_already(self) -> int:
        """The number of events in the database that are not published again."""
        return len({id_ for ids in self.published.values() for id_ in ids}.union(self.requeued))

    @property
    def to_publish(self) -> int:
        """The number of events that accepting publishes."""
        return sum(map(len, self.unpublished.values())) - len(self.waiting)


def account(
    doubts: Doubts,
    on_kafka: Mapping[str, Collection[bytes]],
    strangers: Collection[Sent],
    *,
    compacted: Collection[str] = (),
) -> Account:
    """
    Return the differences between the database and Kafka.

    From a `compacted` topic Kafka may have removed an event once a later one of its key was there.
    So if the later one is there, the earlier ones were.
    """
    published: dict[str, set[bytes]] = {}
    unpublished: dict[str, set[bytes]] = {}
    for topic, ids in doubts.by_topic.items():
        there = ids.keys() & set(on_kafka.get(topic, ()))
        if topic in compacted:
            there |= _overwritten(topic, ids, there)
        published[topic], unpublished[topic] = there, ids.keys() - there
    requeued = {
        id_
        for topic, ids in doubts.parked.items()
        for id_ in ids.keys() & set(on_kafka.get(topic, ()))
    }
    waiting = {
        id_ for topic, ids in unpublished.items() for id_ in _waiting(topic, ids, doubts, requeued)
    }
    return Account(published, unpublished, requeued, waiting, list(strangers))


def _waiting(
    topic: str, unpublished: Collection[bytes], doubts: Doubts, requeued: set[bytes]
) -> Collection[bytes]:
    ids, parked = doubts.by_topic[topic], doubts.parked.get(topic, {})
    held = {
        key
        for id_, key in parked.items()
        if id_ in doubts.holding and id_ not in requeued and key is not None
    }
    return [id_ for id_ in unpublished if id_ in parked or ids[id_] in held]


def _overwritten(topic: str, ids: Ids, there: Collection[bytes]) -> set[bytes]:
    later: set[Key] = set()
    found: set[bytes] = set()
    for id_, key in reversed(ids.items()):
        if id_ in there:
            later.add((topic, key))
        elif (topic, key) in later and key is not None:
            found.add(id_)
    return found
