"""The facts that sources say, as values; None is a fact that nobody knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dovecote.console.shapes import StateName

MINUTE = 60.0
"""For how long what was heard counts, in seconds."""

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Heard(Generic[T_co]):
    """The last word of a source; times are seconds since 1970."""

    value: T_co | None = None
    at: float | None = None
    """When it last answered."""
    error: str = ""
    """Why its newest answer is none; empty: it has answered, or has not been asked yet."""
    failing: float | None = None
    """When it first failed to answer."""

    def fresh(self, now: float) -> T_co | None:
        """Return what it said, unless that is older than a minute."""
        return None if self.at is None or now - self.at > MINUTE else self.value


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """One shard of an outbox."""

    name: str
    active: bool
    standbys: int
    parked: int


@dataclass(frozen=True, slots=True)
class OutboxFacts:
    """The facts that Postgres has of an outbox."""

    shards: Sequence[ShardFacts]
    topics: Sequence[str] = ()
    """Topics of some of the rows that it holds."""


@dataclass(frozen=True, slots=True)
class OutboxLag:
    """The events that wait to be published; it takes Postgres and Kafka to know."""

    rows: int | None
    seconds: float | None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic that is there."""

    partitions: int
    leaderless: int
    end: int | None
    """The sum of the ends of its partitions."""
    kept: int | None
    """Offsets that are kept."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One consumer group."""

    members: int
    rebalancing: bool = False
    lag: Mapping[str, int] = field(default_factory=dict)
    """Offsets after the committed one, by topic."""
    committed: int = 0
    """The sum of the committed offsets."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts that a cluster of Kafka has."""

    topics: Mapping[str, TopicFacts]
    groups: Mapping[str, GroupFacts]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The facts that one process says of itself."""

    state: StateName
    role: str
    reason: str
    published: Mapping[str, float] = field(default_factory=dict)
    """Events that a relay has published so far, by topic."""
    done: float | None = None
    """Events that it has completed so far."""
    lag_events: float | None = None
    lag_seconds: float | None = None
    parked: float | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """The facts that push has of a subscription."""

    id: str
    topics: Sequence[str]
    status: str
    reason: str
    state: StateName | None
    """Its state in the words of all parts, if push says it."""
    processes: int
    trouble: str
    circuit: str
    lag: int | None
    delivered: int
    dead: int
    url: str
    last_minute: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Samples:
    """The last words of all sources, by the names of the parts."""

    clusters: Mapping[str, Heard[ClusterFacts]]
    """By the name of the cluster."""
    outboxes: Mapping[str, Heard[OutboxFacts]]
    lags: Mapping[str, Heard[OutboxLag]]
    processes: Mapping[str, Heard[ProcessFacts]]
    """By the URL of the process."""
    pushes: Mapping[str, Heard[Sequence[SubscriptionFacts]]]
