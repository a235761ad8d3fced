"""
Whether the group still has this member: its coordinator proves it by taking the member's commit.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from dedup.rules.lanes.assigned import Assigned
from dedup.serving.certainty import Certainty
from outbox.kafka import number

_log = logging.getLogger("dovecote.consumer")

_PAUSE_SECONDS = 0.1
# Kafka's default, and with the protocol `consumer` the broker's own.
_SESSION_MILLISECONDS = 45_000


class Proves(Protocol):
    """Sends commits that show whether the group has this member: `Commits`."""

    @property
    def taken(self) -> float: ...
    @property
    def trouble(self) -> str: ...
    def ask(self, partitions: Iterable[Assigned]) -> bool: ...


class Membership:
    """
    Keeps `certainty` up to date while the poll thread comes by without a gap.

    Used by the poll thread only, which waits for no answer. After a gap of `patience` seconds the
    member may be out of its group without knowing it. From then on, no polled record is begun
    until the coordinator has taken a commit: it takes one only from members of the present
    generation. `patience` None: the partitions are shared with nobody.
    """

    def __init__(self, commits: Proves, certainty: Certainty, *, patience: float | None) -> None:
        self._commits, self._certainty, self._patience = commits, certainty, patience
        self._not_before = 0.0

    @property
    def trouble(self) -> str:
        """Why the group has not confirmed this member when it was asked; empty: it has, or may."""
        return self._commits.trouble

    def beat(self, partitions: Iterable[Assigned]) -> None:
        """Record that the poll thread has come by, with all of the client's events handled."""
        if self._patience is None:
            return
        now = time.monotonic()
        proven = self._commits.taken + self._patience
        if now <= self._certainty.until:
            self._certainty.until = now + self._patience
        elif now <= proven:
            self._certainty.until = proven
            _log.info("the group still has this member, after a long silence")
        elif self.confirmed(partitions, since=now) is None:
            self._certainty.until = now + self._patience

    def confirmed(self, partitions: Iterable[Assigned], since: float) -> bool | None:
        """
        Return whether the group has taken a commit of this member that was sent after `since`.

        If it has not, ask it; the answer comes with a later poll. None: nothing was polled that
        could be committed.
        """
        now = time.monotonic()
        if self._commits.taken > max(since, now - (self._patience or math.inf)):
            return True
        if now < self._not_before:
            return False
        self._not_before = now + _PAUSE_SECONDS
        return False if self._commits.ask(partitions) else None


def patience(kafka: Mapping[str, str]) -> float:
    """Return how long a gap may be, so that the heartbeats before and after it are in time."""
    return number(kafka.get("session.timeout.ms", _SESSION_MILLISECONDS)) / 2000
