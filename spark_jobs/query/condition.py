"""Decide in which state a query is, from what was seen of it: no Spark, no clock."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dovecote.process.states import MINUTE, State

Role: TypeAlias = Literal["starting", "running", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySeen:
    """The facts of a query; times are seconds that have passed since, None: never."""

    role: Role
    progressed: float = 0.0
    """Since a batch was done and recorded, or Spark found nothing to do."""
    stall_after: float
    pause: float = 0.0
    """The trigger: nothing is done in between."""
    batch: float | None = None
    """For how long a batch has been at work; None: none is."""
    worked: float | None = None
    """Since a batch with records was done and recorded."""
    trouble: str = ""
    """Why Kafka's last answer was none; empty: all was well."""
    restarts: str = ""
    """How often the runs before this one failed, in words; empty: not often."""
    held: str = ""
    """Partitions that an open transaction holds back."""
    standing: str = ""
    """Partitions of which batches read nothing although they have records."""
    next: str = ""
    """Where the next batch begins, in words."""
    lag_rows: int = 0
    lag_seconds: float = 0.0
    behind_after: float = 300.0


def condition(seen: QuerySeen) -> tuple[State, str]:
    """Return the state of a query, and the reason."""
    return _stuck(seen) or _going(seen)


def _stuck(seen: QuerySeen) -> tuple[State, str] | None:  # one for each
    if seen.role == "stopped":
        return State.DRAINING, "stopped"
    if seen.progressed > seen.stall_after:
        why = f"; {seen.trouble}" if seen.trouble else ""
        return State.STALLED, f"no batch was finished for {seen.progressed:.0f} s{seen.next}{why}"
    if failing := seen.trouble or seen.restarts:
        return State.FAILING, failing
    if seen.role == "starting":
        return State.STARTING, "no batch was finished yet"
    if but := "; ".join(each for each in (seen.held, seen.standing) if each):
        return State.STALLED, f"progressing, but {but}"
    return None


def _going(seen: QuerySeen) -> tuple[State, str]:
    if seen.lag_rows and seen.lag_seconds > seen.behind_after:
        return State.BEHIND, (
            f"{seen.lag_rows} records wait, and the newest that was read is "
            f"{seen.lag_seconds:.0f} s old"
        )
    lately = MINUTE + seen.pause
    if seen.worked is not None and seen.worked <= lately:
        return State.WORKING, "progressing"
    if seen.batch is not None:
        return State.WORKING, f"a batch has been at work for {seen.batch:.0f} s"
    if seen.progressed > lately:
        return State.UNKNOWN, f"Spark was not heard for {seen.progressed:.0f} s"
    return State.IDLE, "progressing"
