"""The state of the operator: keys, with their sessions that records may still join."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from spark_jobs.operators.alarms import Alarms, Ident
from spark_jobs.operators.changes import Changes
from spark_jobs.operators.step import NEVER

BEFORE_ALL = -NEVER


class Open(msgspec.Struct, eq=False):
    """A session that records may still join; made by C, for there are as many as results."""

    start: int
    end: int
    value: Any
    revision: int


@dataclass(slots=True)
class SessionsOfKey:
    """The state of one key."""

    clock: int
    """The key's own stream time; not used where keys share one."""
    arrived: int
    """The wall clock when its last record came that was neither late nor failed."""
    floor: int = BEFORE_ALL
    """The wall clock has closed sessions that end before this."""
    open: list[Open] = field(default_factory=list)
    """In the order of their ends."""


@dataclass(slots=True)
class SessionState:
    """The sessions of many keys."""

    keys: dict[Ident, SessionsOfKey] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    """Stream time by input partition; 0 if all share one. Not used for `per_key`."""
    behind_at: int = BEFORE_ALL
    """When the source last lagged."""
    latest: int = BEFORE_ALL
    """The latest wall clock of a step."""
    waits: Alarms = field(default_factory=Alarms)
    """Wall clock times at which keys close, or are forgotten."""
    ends: dict[int, Alarms] = field(default_factory=dict)
    """For each shared clock, the event times at which sessions end."""
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
