"""
Decide which events are published and which are parked, in the order of the stream.

An event that the broker can never take is parked. Under the policy `hold`, later events of the
same key and topic are parked after it, so that the key's order survives. A key is held from its
first parked event until none is left.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from typing import Literal, NamedTuple

from relay.rules.row import KEY, TOPIC, Identity, Key, Row, identity, key_of

Policy = Literal["hold", "skip"]


class Reason(NamedTuple):
    """Why an event is parked."""

    code: str
    text: str


OF_TOPIC = frozenset(
    {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "TOPIC_EXCEPTION"}
    | {"TOPIC_AUTHORIZATION_FAILED"}
)
"""
Events parked under these codes may be published once their topic exists, or may be written to.
"""

OWN_TOPIC = Reason("TOPIC_RESERVED", "the topic is Kafka's or Dovecote's own")
TOO_LARGE = Reason("MSG_SIZE_TOO_LARGE", "larger than `message.max.bytes` in `[kafka]`")
BEHIND = Reason("BEHIND", "an earlier event of its key is parked")


class Scope(Enum):
    """The extent of a broker's refusal."""

    EVENT = auto()
    """One event, because of its content."""
    TOPIC = auto()
    """Every event of its topic."""
    REQUEST = auto()
    """Several events that were sent together: one of them is to blame, or their size together."""


class EventMark(NamedTuple):
    """Our knowledge of an event before it comes (again)."""

    reason: Reason
    number: int | None = None
    """The number under which it is parked already, if no progress says so."""


class EventToPark(NamedTuple):
    """One event to park."""

    row: Row
    reason: Reason
    holds: bool
    """Later events of its key wait for it."""
    replaces: int | None = None
    """The number under which it was parked before, in a batch that failed."""


class Sorted(NamedTuple):
    """A divided batch; both parts keep its order."""

    publish: Sequence[Row]
    park: Sequence[EventToPark]


def sort(
    rows: Sequence[Row],
    *,
    closed: Mapping[str, Reason],
    held: AbstractSet[Key],
    marks: Mapping[Identity, EventMark],
    policy: Policy,
) -> Sorted:
    """
    Divide a batch: events of `closed` topics or `held` keys, and marked events, are parked.

    An event without a key has no order to keep, so it holds nothing and nothing holds it.
    """
    if not (closed or marks) and (not held or held.isdisjoint(map(key_of, rows))):
        return Sorted(rows, ())
    publish: list[Row] = []
    park: list[EventToPark] = []
    fresh: set[Key] = set()
    for row in rows:
        key, mark = key_of(row), marks.get(identity(row))
        waits = key in held or key in fresh
        reason = mark.reason if mark else closed.get(row[TOPIC])
        if reason is None and not waits:
            publish.append(row)
            continue
        holds = row[KEY] is not None and (waits or policy == "hold")
        if holds:
            fresh.add(key)
        park.append(EventToPark(row, reason or BEHIND, holds, mark.number if mark else None))
    return Sorted(publish, park)
