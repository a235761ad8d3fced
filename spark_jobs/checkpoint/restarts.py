"""Decide from the runs of a query whether it restarts again and again: no Spark, no clock."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

RUNS = "dovecote-runs.json"
"""The file of a checkpoint in which the runs are noted."""
WITHIN_SECONDS = 1_800.0
"""For how long a failed run counts: a supervisor may wait minutes before each start."""
STEADY_SECONDS = 600.0
"""A run that has gone on for this long is no restart any more."""
FEWEST = 3
"""So many failed runs are no accident."""

_MOST_RUNS = 20
_MOST_CHARACTERS = 300
_KILLED = "it was killed, or its machine went away"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run of a query; times are in seconds since 1970."""

    began: float
    ended: float | None = None
    """None: it is at work, or it ended without a word."""
    error: str = ""
    """Why it failed; empty: it did not."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """The failed runs that count."""

    failed: int = 0
    since: float = 0.0
    """When the first of them failed, in seconds since 1970."""
    error: str = ""
    """Why the last of them failed."""

    def text(self, now: float) -> str:
        """Return what they mean at `now`, in words; empty: no trouble."""
        if self.failed < FEWEST:
            return ""
        within = max(0.0, now - self.since)
        return (
            f"restarts again and again: {self.failed} runs failed within {within:.0f} s, "
            f"the last one because {self.error}"
        )


def restarts(runs: Sequence[Ran], now: float, *, running: bool) -> Restarts:
    """
    Return the failed runs of the last half hour, of `runs` in order of time.

    With `running`, the last one is at work: none counts once it has gone on for ten minutes.
    Without it, nothing is known about a last run that has no end, and it does not count.
    """
    if running and runs and now - runs[-1].began >= STEADY_SECONDS:
        return Restarts()
    failures = list[tuple[float, str]]()
    for number, run in enumerate(runs):
        after = runs[number + 1] if number + 1 < len(runs) else None
        if run.ended is not None and run.error:
            failures.append((run.ended, run.error))
        elif run.ended is None and after is not None:
            # Nobody was there to note its end, which was before the next one began.
            failures.append((after.began, _KILLED))
    counted = [(at, error) for at, error in failures if now - at <= WITHIN_SECONDS]
    if not counted:
        return Restarts()
    return Restarts(len(counted), counted[0][0], counted[-1][1])


def begun(runs: Sequence[Ran], now: float) -> tuple[Ran, ...]:
    """Return the newest of `runs`, and after them one that begins `now`."""
    return (*runs[-(_MOST_RUNS - 1) :], Ran(began=now))


def ended(runs: Sequence[Ran], now: float, error: str = "") -> tuple[Ran, ...]:
    """Return `runs`, of which the last one ended `now`; without an error it was meant to."""
    *before, last = runs
    return (*before, replace(last, ended=max(now, last.began), error=error[:_MOST_CHARACTERS]))


def encode(runs: Sequence[Ran]) -> str:
    """Return the contents of the file."""
    return json.dumps({"runs": [asdict(each) for each in runs]})


def decode(text: str) -> tuple[Ran, ...]:
    """
    Return the runs that a file has.

    Raises:
        ValueError: it is cut, or not ours.
    """
    try:
        found = [_ran(each) for each in json.loads(text)["runs"]]
    except (KeyError, TypeError, RecursionError) as error:
        msg = f"it has no list of runs ({error})"
        raise ValueError(msg) from error
    return tuple(found[-_MOST_RUNS:])


def _ran(found: dict[str, object]) -> Ran:
    began, stopped, error = found["began"], found["ended"], found["error"]
    if not (
        isinstance(began, int | float)
        and (stopped is None or isinstance(stopped, int | float))
        and isinstance(error, str)
    ):
        msg = f"{found} is no run"
        raise TypeError(msg)
    return Ran(began=began, ended=stopped, error=error)
