"""
Know which keys wait for a parked event, in bounded memory, whatever is parked.

Up to `MOST` keys are remembered by their digests. With more of them only their topics are, and the
database is asked about the keys of a batch. Events of other topics cost no question.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import TypeAlias

from relay.rules.row import KEY, TOPIC, Key, Row, key_of

MOST = 20_000
"""The most keys that are remembered: some 3 MB."""

Lane: TypeAlias = tuple[str, bytes]
"""A topic, and the digest of a key."""

AskHeld: TypeAlias = Callable[[Sequence[Lane]], Collection[int]]
"""Returns the places of the lanes in which an event is parked that holds its key."""


def lane_of(key: Key) -> Lane:
    """Return the lane of a key that is not None."""
    topic, value = key
    return topic, sha256(value or b"").digest()


class HeldKeys:
    """The keys that parked events hold."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._count = most, 0
        self._lanes: dict[str, set[bytes]] = {}
        self._topics: set[str] | None = None
        """The topics with held keys, once there are too many keys; None: any topic."""
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Return whether there are too many keys to remember."""
        return self._is_over

    def begin(self, lanes: Iterable[Lane], topics: Callable[[], Collection[str] | None]) -> None:
        """
        Learn the held keys anew.

        `topics` is called if there are too many; it returns their topics, or None if these are too
        many, too.
        """
        self._lanes, self._count, self._is_over, self._topics = {}, 0, False, None
        for topic, digest in lanes:
            self._add(topic, digest)
            if self._count > self._most:
                found = topics()
                self._turn_over(None if found is None else set(found))
                return

    def add(self, keys: Iterable[Key]) -> None:
        """Note keys that an event holds from now on; one that is None holds nothing."""
        for topic, value in keys:
            if value is None:
                continue
            if self._is_over:
                self._note(topic)
                continue
            self._add(*lane_of((topic, value)))
            if self._count > self._most:
                self._turn_over(set(self._lanes))

    def discard(self, key: Key) -> None:
        """Note that no event holds a key any more."""
        topic, value = key
        if value is None or self._is_over or (digests := self._lanes.get(topic)) is None:
            return
        _, digest = lane_of(key)
        if digest in digests:
            digests.discard(digest)
            self._count -= 1
            if not digests:
                del self._lanes[topic]

    def among(self, rows: Iterable[Row], ask: AskHeld) -> AbstractSet[Key]:
        """Return the held keys of `rows`; the database is asked only where it must be."""
        if self._is_over:
            topics = self._topics
            keys = [
                key
                for key in {key_of(row) for row in rows if row[KEY] is not None}
                if topics is None or key[0] in topics
            ]
            found = ask([lane_of(key) for key in keys]) if keys else ()
            return {keys[place] for place in found}
        lanes = self._lanes
        if not lanes:
            return frozenset()
        mine = {key_of(row) for row in rows if row[TOPIC] in lanes and row[KEY] is not None}
        return {key for key in mine if lane_of(key)[1] in lanes[key[0]]}

    def _note(self, topic: str) -> None:
        if self._topics is not None:
            self._topics.add(topic)
            if len(self._topics) > self._most:
                self._topics = None

    def _add(self, topic: str, digest: bytes) -> None:
        digests = self._lanes.setdefault(topic, set())
        if digest not in digests:
            digests.add(digest)
            self._count += 1

    def _turn_over(self, topics: set[str] | None) -> None:
        self._is_over, self._topics, self._lanes, self._count = True, topics, {}, 0
