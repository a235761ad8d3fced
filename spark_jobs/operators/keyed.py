"""The state of an operator that has keys with clocks: their own, or one that they share."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spark_jobs.operators.alarms import Alarms, Ident
from spark_jobs.operators.changes import Changes
from spark_jobs.operators.step import NEVER

H = TypeVar("H")


@dataclass(slots=True)
class KeyedState(Generic[H]):
    """Many keys, and what each holds."""

    keys: dict[Ident, H] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    """Stream time by input partition; 0 if all share one. Not used for `per_key`."""
    behind_at: int = -NEVER
    """When the source last lagged."""
    latest: int = -NEVER
    """The latest wall clock of a step."""
    waits: Alarms = field(default_factory=Alarms)
    """Wall clock times at which something of a key closes, or the key is forgotten."""
    ends: dict[int, Alarms] = field(default_factory=dict)
    """For each shared clock, the event times at which the operator looks at a key."""
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
