"""Decide in which state a relay is, from what was seen of it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dovecote.process.states import MINUTE, State

Role: TypeAlias = Literal["starting", "standby", "active", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySeen:
    """The facts of a relay; times are seconds that have passed since, None: never."""

    role: Role
    failure: str = ""
    """Why it is stuck; empty: it is not."""
    progressed: float = 0.0
    """Since it went on: a batch, a look that found nothing, or a question for the role."""
    stall_after: float = 10.0
    ending: bool = False
    active: float = 0.0
    """Since it got the active role."""
    published: float | None = None
    answered: float | None = None
    """Since Kafka answered."""
    trouble: str = ""
    """Why Kafka's last answer was none, or a refusal; empty: all was well."""
    lag_rows: int = 0
    lag_seconds: float = 0.0
    behind_after: float = MINUTE
    lag_bytes: int = 0
    """Bytes of the write-ahead log that wait."""
    warn_bytes: int | None = None
    parked: int = 0
    """Events that are parked."""
    parked_since: float | None = None
    """Since an event was last parked for its own sake."""
    parked_why: str = ""


def condition(seen: RelaySeen) -> tuple[State, str]:  # noqa: PLR0911  # one line for each state
    """Return the state of a relay, and the reason."""
    if seen.role == "stopped":
        return State.DRAINING, "stopped"
    if seen.ending:
        return State.DRAINING, "it ends once the batch in flight is confirmed"
    if seen.failure:
        return State.FAILING, seen.failure
    if seen.progressed > seen.stall_after:
        return State.STALLED, f"no progress for {seen.progressed:.0f} s"
    if seen.role == "starting":
        return State.STARTING, "starting"
    if seen.trouble:
        return State.FAILING, seen.trouble
    if seen.role == "standby":
        return _proven(State.STANDBY, seen)
    return _active(seen)


def _active(seen: RelaySeen) -> tuple[State, str]:  # noqa: PLR0911  # as above
    moved = seen.active if seen.published is None else min(seen.active, seen.published)
    if seen.lag_rows and seen.lag_seconds > MINUTE < moved:
        return State.STALLED, (
            f"{_events(seen.lag_rows)} waiting, the oldest for {seen.lag_seconds:.0f} s, and "
            f"nothing was published for {moved:.0f} s; `dovecote relay doctor` looks for the cause"
        )
    if seen.parked and seen.parked_since is not None and seen.parked_since <= MINUTE:
        return State.FAILING, (
            f"it parked events within the last minute: {seen.parked_why}; {_parked(seen.parked)}"
        )
    if seen.lag_rows and seen.lag_seconds > seen.behind_after:
        return State.BEHIND, (
            f"{_events(seen.lag_rows)} waiting, the oldest for {seen.lag_seconds:.0f} s"
        )
    if seen.warn_bytes is not None and seen.lag_bytes > seen.warn_bytes:
        return State.BEHIND, f"{seen.lag_bytes:,} bytes of the write-ahead log are not published"
    if seen.parked:
        return State.BEHIND, _parked(seen.parked)
    if seen.published is not None and seen.published <= MINUTE:
        return State.WORKING, "progressing"
    return _proven(State.IDLE, seen)


def _proven(state: State, seen: RelaySeen) -> tuple[State, str]:
    if seen.answered is None:
        return State.STARTING, "Kafka has not answered yet"
    if seen.answered > MINUTE:
        return State.UNKNOWN, f"Kafka was not heard for {seen.answered:.0f} s"
    return state, "progressing"


def _events(count: int) -> str:
    return f"{count} event{' is' if count == 1 else 's are'}"


def _parked(count: int) -> str:
    return f"{_events(count)} parked: see `dovecote relay parked list`"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSeen:
    """The facts of an outbox from outside, while Kafka and Postgres answered."""

    active: bool
    moved: bool = True
    """Whether progress has moved since a look before; without one: it has."""
    slot_lost: bool = False
    lag_rows: int = 0
    lag_seconds: float = 0.0
    behind_after: float = MINUTE
    lag_bytes: int = 0
    warn_bytes: int | None = None
    parked: int = 0


def outside(seen: OutsideSeen) -> tuple[State, str]:  # noqa: PLR0911  # one line for each state
    """Return the state of an outbox, or of one of its shards, and the reason."""
    waits = f"{_events(seen.lag_rows)} waiting, the oldest for {seen.lag_seconds:.0f} s"
    if seen.slot_lost:
        return State.FAILING, (
            "the replication slot is lost: `dovecote relay doctor` says how to go on"
        )
    if not seen.active:
        if seen.lag_rows:
            return State.STALLED, f"no relay is active, and {waits}"
        return State.UNKNOWN, "no relay is active"
    if seen.lag_rows and seen.lag_seconds > MINUTE and not seen.moved:
        return State.STALLED, (
            f"{waits}, and progress does not move; `dovecote relay doctor` looks for the cause"
        )
    if seen.lag_rows and seen.lag_seconds > seen.behind_after:
        return State.BEHIND, waits
    if seen.warn_bytes is not None and seen.lag_bytes > seen.warn_bytes:
        return State.BEHIND, f"{seen.lag_bytes:,} bytes of the write-ahead log are not published"
    if seen.parked:
        return State.BEHIND, _parked(seen.parked)
    if seen.lag_rows:
        return State.WORKING, f"{_events(seen.lag_rows)} being published"
    return State.IDLE, "everything is published"
