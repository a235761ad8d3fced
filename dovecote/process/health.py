"""The health of a process, as it reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One look at a process; `ok` decides between 200 and 503."""

    ok: bool
    role: str
    """What the process does now, such as `standby` or `active`."""
    reason: str
