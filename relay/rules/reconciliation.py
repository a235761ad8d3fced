"""
What a database that was put back and Kafka have of each other's events: decided, and not asked.

In doubt is every event of the database behind the mark: the progress of which it remembers that it
was durable. Kafka is read from the time of the mark on. What is in doubt and there is published;
what is there and in doubt nowhere is missing in the database.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from relay.rules.parking import Key

Ids = dict[bytes, bytes | None]
"""The ids of events of one topic, in the order of the stream, each with its key."""


class Sent(NamedTuple):
    """A record of Kafka, of which there may be no event in the database."""

    id: str
    topic: str
    key: bytes | None
    at: int
    """Its timestamp, in milliseconds since 1970."""


@dataclass(slots=True)
class Doubts:
    """Events of the database that may be on Kafka."""

    by_topic: dict[str, Ids] = field(default_factory=dict)
    parked: dict[str, Ids] = field(default_factory=dict)
    """Not on Kafka when the database was as it is now."""
    holding: set[bytes] = field(default_factory=set)
    """Parked, and later events of their keys wait for them."""

    def topics(self) -> set[str]:
        """Return where they went, if they did."""
        return self.by_topic.keys() | self.parked.keys()

    def add(self, topic: str, id_: str, key: bytes | None) -> None:
        """Put an event into doubt, behind all others."""
        self.by_topic.setdefault(topic, {})[UUID(id_).bytes] = key

    def add_parked(self, topic: str, id_: str, key: bytes | None, *, holds: bool) -> None:
        """Put a parked event into doubt."""
        self.parked.setdefault(topic, {})[UUID(id_).bytes] = key
        if holds:
            self.holding.add(UUID(id_).bytes)

    def has(self, topic: str, id_: bytes) -> bool:
        """Tell whether an event is in doubt."""
        return id_ in self.by_topic.get(topic, ()) or id_ in self.parked.get(topic, ())


@dataclass(frozen=True, slots=True)
class Account:
    """How a database and Kafka differ."""

    published: Mapping[str, Collection[bytes]]
    """By topic: in doubt, and on Kafka."""
    unpublished: Mapping[str, Collection[bytes]]
    """In doubt, and not on Kafka."""
    requeued: Collection[bytes]
    """Parked, and on Kafka."""
    waiting: Collection[bytes]
    """In doubt, not on Kafka, and parked, or behind an event that is."""
    missing: list[Sent]
    """On Kafka, and not in the database."""

    @property
    def published_already(self) -> int:
        """How many events of the database are not published again."""
        return len({id_ for ids in self.published.values() for id_ in ids}.union(self.requeued))

    @property
    def to_publish(self) -> int:
        """How many are published by accepting it."""
        return sum(map(len, self.unpublished.values())) - len(self.waiting)


def account(
    doubts: Doubts,
    on_kafka: Mapping[str, Collection[bytes]],
    strangers: Collection[Sent],
    *,
    compacted: Collection[str] = (),
) -> Account:
    """
    Compare.

    Of a `compacted` topic Kafka may have removed an event once a later one of its key was there:
    so where that is there, the earlier ones were.
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
