"""Decide whether a consumer group is well, by what Kafka says of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from dovecote.observe.rules.counted import counted

GroupState: TypeAlias = Literal["working", "idle", "starting", "failing", "stalled", "unknown"]
"""Words of the list of states that all parts have."""

_BAD = frozenset({"failing", "stalled"})
_SETTLED = frozenset({"STABLE", "EMPTY", "DEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition that a group reads; None where nobody knows."""

    topic: str
    partition: int
    member: str | None
    """The member that has it; None: nobody."""
    committed: int | None
    end: int | None
    lag: int | None
    """Records and ends of transactions that are not completed yet."""
    seconds: float | None
    """The age of the first of them; 0: there is none."""
    completed: int
    """Records beyond the committed offset that are completed already."""
    due: datetime | None = None
    """When the first record of a retry topic is to be handled."""

    @property
    def is_held_back(self) -> bool:
        """Whether a record keeps back the committed offset, and later ones are completed."""
        return self.completed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One process of a group."""

    id: str
    client: str
    host: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ReadyAnswer:
    """The answer of a process to `/readyz`."""

    url: str
    ready: bool
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A consumer group, its partitions and its processes."""

    group: str
    kafka_state: str
    """Kafka's word for it: STABLE, EMPTY, …"""
    members: Sequence[GroupMember]
    partitions: Sequence[GroupPartition]
    retries: Sequence[GroupPartition]
    """The partitions of retry topics."""
    dead: int | None
    """Dead letters that are neither requeued nor dropped; None: there is no topic for them."""
    dead_whole: bool
    """Whether these are all."""
    ready: Sequence[ReadyAnswer] = ()
    failures: Sequence[str] = ()
    """The topics and servers that could not be asked, and why."""

    @property
    def lag(self) -> int:
        """Records that wait, as far as that is known."""
        return sum(each.lag or 0 for each in (*self.partitions, *self.retries))


def verdict(found: GroupStatus) -> tuple[GroupState, str]:
    """Return the state of a group, and why."""
    waits = f"{counted(found.lag, 'record')} wait{'s' if found.lag == 1 else ''}"
    unready = [each for each in found.ready if not each.ready]
    if not found.members:
        return _without_members(found, waits)
    if found.kafka_state not in _SETTLED:
        return "starting", f"its partitions are being assigned ({found.kafka_state.lower()})"
    alone = [
        f"{each.topic}/{each.partition}"
        for each in (*found.partitions, *found.retries)
        if each.member is None
    ]
    if alone:
        more = f" and {len(alone) - 3} more" if len(alone) > 3 else ""  # noqa: PLR2004  # a glance
        return "stalled", f"nobody has {', '.join(alone[:3])}{more}"
    if unready:
        return "failing", f"{unready[0].url} is not ready: {unready[0].said}"
    return _of_lag(found, waits)


def _without_members(found: GroupStatus, waits: str) -> tuple[GroupState, str]:
    if found.lag:
        return "stalled", f"no member is there, and {waits}"
    return "unknown", "no member is there, and nothing waits"


def _of_lag(found: GroupStatus, waits: str) -> tuple[GroupState, str]:
    if found.failures:
        return "unknown", found.failures[0]
    return ("working", waits) if found.lag else ("idle", "nothing waits")


def is_well(state: GroupState) -> bool:
    """Return whether nobody has to do anything now."""
    return state not in _BAD
