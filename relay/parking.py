"""
Decide which events are published and which are parked, in the order of the stream.

An event that the broker can never take is parked; under the policy `hold` the later events of its
key of its topic are parked behind it, so that the key's order survives. A key is held from its
first parked event until none is left.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, auto
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from relay.capture.batch import Row

Policy = Literal["hold", "skip"]

Identity: TypeAlias = tuple[int, str]
"""Position and id of an event: what it is known by when it is read again."""

Key: TypeAlias = tuple[str, bytes | None]
"""What is held: a key of a topic."""

_POSITION, _ID, _TOPIC, _KEY = 0, 1, 3, 4

# Kafka's own topics and ours: whoever writes there forges what others believe.
_OURS = ("__", "dovecote.progress.", "dovecote.markers.")

# How often a broker that refused a whole topic is asked after it again, in seconds.
_ASK_AGAIN = 30.0


class Reason(NamedTuple):
    """Why an event is parked."""

    code: str
    text: str


OWN_TOPIC = Reason("TOPIC_RESERVED", "the topic is Kafka's or Dovecote's own")
BEHIND = Reason("BEHIND", "an earlier event of its key is parked")


class Scope(Enum):
    """What a broker's refusal is about."""

    EVENT = auto()
    """One event, for what it is."""
    TOPIC = auto()
    """Every event of its topic."""
    REQUEST = auto()
    """Several that were sent together: one of them, or all for their size."""


class Mark(NamedTuple):
    """What is known of an event before it is met (again)."""

    reason: Reason
    number: int | None = None
    """Its number, if it was parked already and no progress says so."""


class Parked(NamedTuple):
    """One event to park."""

    row: Row
    reason: Reason
    holds: bool
    """Later events of its key wait behind it."""
    replaces: int | None = None
    """The number under which it was parked before, in a batch that came to nothing."""


class Sorted(NamedTuple):
    """A batch, divided; both parts keep its order."""

    publish: Sequence[Row]
    park: Sequence[Parked]


def identity(row: Row) -> Identity:
    """Return what an event is known by when it is read again."""
    return row[_POSITION], row[_ID]


def key_of(row: Row) -> Key:
    """Return what is held when the event holds its key."""
    return row[_TOPIC], row[_KEY]


# As above, for the many: every batch passes here.
keys_of, topics_of = itemgetter(_TOPIC, _KEY), itemgetter(_TOPIC)


def sort(
    rows: Sequence[Row],
    *,
    closed: Mapping[str, Reason],
    held: AbstractSet[Key],
    marks: Mapping[Identity, Mark],
    policy: Policy,
) -> Sorted:
    """
    Divide a batch: `closed` topics, `held` keys and marked events are parked.

    An event without a key has no order to keep: it holds nothing, and nothing holds it.
    """
    if not (closed or marks) and (not held or held.isdisjoint(map(keys_of, rows))):
        return Sorted(rows, ())
    publish: list[Row] = []
    park: list[Parked] = []
    fresh: set[Key] = set()
    for row in rows:
        key, mark = key_of(row), marks.get(identity(row))
        behind = key in held or key in fresh
        reason = mark.reason if mark else closed.get(row[_TOPIC])
        if reason is None and not behind:
            publish.append(row)
            continue
        holds = row[_KEY] is not None and (behind or policy == "hold")
        if holds:
            fresh.add(key)
        park.append(Parked(row, reason or BEHIND, holds, mark.number if mark else None))
    return Sorted(publish, park)


@dataclass(frozen=True, slots=True)
class Rules:
    """Which topics a relay publishes to, whoever asks."""

    progress_topic: str
    allowed: Sequence[str] = ()
    """Names and patterns (`orders.*`); none: all."""

    def refusal(self, topic: str) -> Reason | None:
        """Return why events for `topic` are not published, or None if they are."""
        if topic == self.progress_topic or topic.startswith(_OURS):
            return OWN_TOPIC
        if self.allowed and not any(fnmatchcase(topic, one) for one in self.allowed):
            return Reason("TOPIC_NOT_ALLOWED", "the topic is not among the relay's `topics`")
        return None


@dataclass(slots=True)
class Topics:
    """What is known of topics: those the rules close, and those the broker refused."""

    rules: Rules
    patience: float
    """A refused topic may be about to be made: for so many seconds everything waits for it."""
    _since: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, tuple[Reason, float]] = field(default_factory=dict)

    def refused(self, topic: str, reason: Reason, now: float) -> bool:
        """Note that the broker refuses `topic`; tell whether it was waited for long enough."""
        if now - self._since.setdefault(topic, now) < self.patience:
            return False
        self._refused[topic] = (reason, now + _ASK_AGAIN)
        return True

    def taken(self, rows: Sequence[Row]) -> None:
        """Note that the broker took `rows`: of their topics nothing is held against any more."""
        if self._since:
            for topic in self._since.keys() & set(map(topics_of, rows)):
                del self._since[topic]
                self._refused.pop(topic, None)

    def closed(
        self, rows: Sequence[Row], now: float, is_there: Callable[[str], bool]
    ) -> Mapping[str, Reason]:
        """Return the topics of `rows` that are closed; `is_there` asks the broker once more."""
        found: dict[str, Reason] = {}
        for topic in set(map(topics_of, rows)):
            reason = self.rules.refusal(topic) or self._still_refused(topic, now, is_there)
            if reason is not None:
                found[topic] = reason
        return found

    def _still_refused(
        self, topic: str, now: float, is_there: Callable[[str], bool]
    ) -> Reason | None:
        reason, ask_at = self._refused.get(topic, (None, 0.0))
        if reason is None or now < ask_at:
            return reason
        del self._refused[topic]
        if is_there(topic):
            return None
        self._refused[topic] = (reason, now + _ASK_AGAIN)
        return reason
