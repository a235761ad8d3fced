"""The health of a process, as it reports it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One look at a process; `ok` decides between 200 and 503."""

    ok: bool
    role: str
    """The present role of the process, such as `standby` or `active`."""
    reason: str


class Ready(Protocol):
    """Reports whether a process does its job."""

    def ready(self) -> HealthReport: ...
