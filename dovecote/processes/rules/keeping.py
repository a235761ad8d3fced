"""Decide when a process that ended is started again, and what the parent says of its own."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dovecote.process.health import HealthReport
from dovecote.process.states import State, worst

# A process that ends at once would otherwise be started again hundreds of times a minute.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

SETTLED = 60.0
"""After so many seconds of work, the next end of a process counts as its first."""

FRESH = 10.0
"""How long, in seconds, the last answer of a process counts."""

QUIET = 3.0
"""
After so many seconds without an answer, others are asked before a process.

A busy process may answer late, and is asked all the same if no other one is there.
"""

PATIENCE = 300.0
"""
After so many seconds without an answer, a process is killed and started again.

Kafka gives the partitions of a consumer away after the same time (`max.poll.interval.ms`).
"""

# A parent that was stopped has heard nothing meanwhile, which is no silence of its processes.
_LONGEST_STEP = 1.0


Report: TypeAlias = tuple[float, HealthReport]
"""The last answer of a process about itself, with its time."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the processes, as the parent knows it."""

    number: int
    since: float
    """When it was started, or when it is to be started."""
    runs: bool = True
    served: bool = False
    """Whether it has begun its work, in this start."""
    ends: int = 0
    """How often in a row it has ended by itself."""
    restarts: int = 0
    """How often it was started again since the parent began."""
    said: str = ""
    """How it ended the last time."""


def ended(member: Member, how: str, now: float) -> Member:
    """Return what is known of a process that has ended, and when it is started again."""
    ends = 1 if now - member.since >= SETTLED else member.ends + 1
    pause = min(_FIRST_PAUSE * 2 ** min(ends - 1, 16), _LONGEST_PAUSE)
    return replace(member, since=now + pause, runs=False, served=False, ends=ends, said=how)


def started(member: Member, now: float) -> Member:
    """Return what is known of a process that was started again."""
    return replace(member, since=now, runs=True, restarts=member.restarts + 1)


def is_due(member: Member, now: float) -> bool:
    """Return whether it is time to start it again."""
    return not member.runs and now >= member.since


def gives_up(member: Member) -> bool:
    """
    Return whether the end of this process ends them all.

    A process that ends before it has ever worked would end again: its settings are wrong, or what
    it needs is missing. The parent ends as that process would have done alone.
    """
    return member.restarts == 0 and not member.served


def silence(before: float, passed: float) -> float:
    """Return for how long a process has been silent, `passed` seconds later; in seconds."""
    return before + min(passed, _LONGEST_STEP)


def fault(member: Member, status: int) -> str:
    """Return what is wrong with the end of a process that was told to end; empty: nothing."""
    # A process that has not begun has no handler of the signal yet, and nothing to finish.
    if status == 0 or (status == -signal.SIGTERM and not member.served):
        return ""
    return f"process {member.number} {told(status)} when it was told to end"


def told(status: int) -> str:
    """Return how a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def whole(
    members: Sequence[Member],
    reports: Sequence[Report | None],
    now: float,
    *,
    ending: bool,
) -> HealthReport:
    """
    Return the health of all processes as one.

    It is ready if each of them is, and its state is the worst of theirs. The reason names the
    processes that are not well. `reports` are their last answers, each with its time.
    """
    each = [_one(member, last, now) for member, last in zip(members, reports, strict=True)]
    state = State.DRAINING if ending else worst(report.state for report in each)
    odd = [
        f"process {member.number}: {report.reason}"
        for member, report in zip(members, each, strict=True)
        if not report.ok or not report.state.is_green
    ]
    roles = dict.fromkeys(report.role for report in each)
    return HealthReport(
        ok=not ending and all(report.ok for report in each),
        role=", ".join(roles),
        reason="; ".join(odd) or f"{len(members)} processes: {each[0].reason}",
        state=state,
    )


def heard(member: Member, last: Report | None, now: float) -> HealthReport | None:
    """Return what a running process has said of itself lately, if it has."""
    if last is None or not member.runs or not member.since <= last[0] >= now - FRESH:
        return None
    return last[1]


def asked_first(number: int, silent: float, last: HealthReport | None) -> tuple[bool, bool, int]:
    """
    Return the place of a process among those that could do a request, the first one first.

    All requests go to one process while it is well, so that their limits are those of one, and
    none is the only one: each finds in Postgres all that it needs. A process that has been
    `silent` for so many seconds comes last, after those that say of themselves that they fail.
    """
    return silent >= QUIET, last is None or not last.ok, number


def _one(member: Member, last: Report | None, now: float) -> HealthReport:
    if not member.runs:
        reason = f"it {member.said}, and is started again in {max(0, member.since - now):.0f} s"
        return HealthReport(ok=False, role="ended", reason=reason, state=State.FAILING)
    if (report := heard(member, last, now)) is not None:
        return report
    if now - member.since <= FRESH:
        before = f"; before, it {member.said}" if member.said else ""
        return HealthReport(
            ok=False, role="starting", reason=f"it starts{before}", state=State.STARTING
        )
    silent = now - max(member.since, last[0] if last else 0.0)
    reason = f"it runs, and has not answered for {silent:.0f} s: see its log"
    return HealthReport(ok=False, role="silent", reason=reason, state=State.STALLED)
