"""The state of the operator: keys, with their calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_jobs.operators.alarms import Alarms, Ident
from spark_jobs.operators.changes import Changes
from spark_jobs.operators.pairing.calls import CallsOfKey
from spark_jobs.operators.step import NEVER


@dataclass(slots=True)
class PairState:
    """The calls of many keys."""

    keys: dict[Ident, CallsOfKey] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    """Stream time by input partition; 0 if all share one. Not used for `per_key`."""
    behind_at: int = -NEVER
    """When the source last lagged."""
    latest: int = -NEVER
    """The latest wall clock of a step."""
    waits: Alarms = field(default_factory=Alarms)
    """Wall clock times at which calls close, or keys are forgotten."""
    ends: dict[int, Alarms] = field(default_factory=dict)
    """For each shared clock, the event times at which calls begin."""
    changes: Changes = field(default_factory=Changes, compare=False, repr=False)
    """The changes since the state was stored."""

    def forget(self, ident: Ident) -> None:
        """Remove a key."""
        self.keys.pop(ident, None)
        self.changes.forget(ident)

    def remove(self, gone: Iterable[Ident]) -> None:
        """Remove keys."""
        for ident in gone:
            self.forget(ident)
