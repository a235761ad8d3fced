"""Decide in which state a consumer is, from what was seen of it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dovecote.process.states import MINUTE, State

Role: TypeAlias = Literal["starting", "consuming", "stopped"]

_LASTING = 5.0
"""A refusal of the group that passes by itself, with a rebalance, takes less than this."""

_STORM = 20
"""With fewer failures than this within the minute, a share of them is chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSeen:
    """The facts of a consumer; times are seconds that have passed since, None: never."""

    role: Role
    stall_after: float = 60.0
    failure: str = ""
    """The current problem with Kafka; empty: there is none."""
    away: float = 0.0
    """Since the group had this member."""
    away_after: float = 60.0
    """How long that may take, because members are shared out anew from time to time."""
    said: str = ""
    """The last error that Kafka returned; empty: there is none."""
    polled: float = 0.0
    progressed: float = 0.0
    """Since a record was completed, or none in memory was due."""
    worked: float | None = None
    """Since a record was completed."""
    handler: float = 0.0
    """For how long the longest running handler has been at work."""
    lacking: str = ""
    """Topics and partitions that cannot be read."""
    held: str = ""
    """Partitions that do not go on, because of a record or of a transaction."""
    barred: str = ""
    """Why records are not begun: the group does not confirm the member, or nothing is claimed."""
    unmoved: str = ""
    """Partitions whose offsets do not move."""
    inbox: str = ""
    """Why the inbox did not answer; empty: it did, or there is none."""
    assigned: int = 1
    """How many partitions it has."""
    shared: str | None = ""
    """Why some partition of the group has no member; empty: each has; None: not known yet."""
    answered: float | None = 0.0
    """Since Kafka answered."""
    handled: int = 0
    """Records that were handled or skipped within the last minute."""
    failed: int = 0
    """Attempts within the last minute that failed."""
    waits: bool = False
    """Whether all records in memory wait for a time that was set for them."""
    in_memory: int = 0
    lag_rows: int = 0
    lag_seconds: float = 0.0
    behind_after: float = 300.0


def condition(seen: ConsumerSeen) -> tuple[State, str]:
    """Return the state of a consumer, and the reason."""
    return _beginning(seen) or _stuck(seen) or _going(seen)


def _beginning(seen: ConsumerSeen) -> tuple[State, str] | None:
    said = f": {seen.said}" if seen.said else ""
    if seen.role == "stopped":
        return State.DRAINING, "stopped"
    if seen.failure:
        return State.FAILING, f"{seen.failure}{said}"
    if seen.role == "starting":
        state = State.FAILING if said or seen.away > seen.away_after else State.STARTING
        return state, f"not a member of the group yet{said}"
    if seen.away > seen.away_after:
        return State.FAILING, f"not a member of the group for {seen.away:.0f} s{said}"
    return None


def _stuck(seen: ConsumerSeen) -> tuple[State, str] | None:  # noqa: PLR0911  # one for each
    if seen.polled > seen.stall_after:
        return State.STALLED, f"not polled for {seen.polled:.0f} s"
    if seen.inbox:
        return State.FAILING, f"the inbox: {seen.inbox}"
    if seen.progressed > seen.stall_after:
        why = "; ".join(each for each in (seen.barred, seen.lacking) if each)
        return State.STALLED, (
            f"records are in memory and none was completed for {seen.progressed:.0f} s"
            + (f": {why}" if why else "")
        )
    if seen.barred and seen.progressed > _LASTING:
        return State.FAILING, f"no record is begun: {seen.barred}"
    if seen.lacking:
        return State.FAILING, f"progressing, but {seen.lacking}"
    if seen.held or seen.unmoved:
        but = "; ".join(each for each in (seen.held, seen.unmoved) if each)
        return State.STALLED, f"progressing, but {but}"
    if seen.handler > seen.stall_after:
        return (
            State.STALLED,
            f"progressing, but a handler has been at work for {seen.handler:.0f} s",
        )
    if not seen.assigned and seen.shared is not None and seen.shared:
        return State.FAILING, f"it has no partition, and {seen.shared}"
    if (seen.failed >= _STORM and seen.failed >= seen.handled) or (
        seen.failed and not seen.handled
    ):
        tried = seen.failed + seen.handled
        return State.FAILING, f"{seen.failed} of the last minute's {tried} attempts failed"
    return None


def _going(seen: ConsumerSeen) -> tuple[State, str]:  # noqa: PLR0911  # one line for each state
    if seen.lag_rows and seen.lag_seconds > seen.behind_after:
        return State.BEHIND, (
            f"{_records(seen.lag_rows)} to be completed, the oldest for {seen.lag_seconds:.0f} s"
        )
    if seen.worked is not None and seen.worked <= MINUTE:
        return State.WORKING, "progressing"
    if seen.answered is None:
        return State.STARTING, "Kafka has not answered yet"
    if seen.answered > MINUTE:
        return State.UNKNOWN, f"Kafka was not heard for {seen.answered:.0f} s"
    if not seen.assigned:
        if seen.shared is None:
            return State.STARTING, "it has no partition yet"
        return State.STANDBY, "the other members of the group have all partitions"
    if seen.waits and seen.in_memory:
        return State.IDLE, f"{_records(seen.in_memory)} to wait for the time that was set for them"
    if seen.in_memory:
        return State.WORKING, "its handler is at work"
    return State.IDLE, "progressing"


def _records(count: int) -> str:
    return f"{count} record{' is' if count == 1 else 's are'}"
