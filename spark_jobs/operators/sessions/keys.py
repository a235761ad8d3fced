"""The state of the operator: keys, with their sessions that records may still join."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from spark_jobs.operators.keyed import KeyedState
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


class SessionState(KeyedState[SessionsOfKey]):
    """The sessions of many keys; a shared clock has alarms for their ends."""

    __slots__ = ()
