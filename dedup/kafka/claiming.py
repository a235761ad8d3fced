"""
Claim assigned partitions before their records are handled, and again if another member has one.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, Future
from typing import Protocol

from dedup.kafka.membership import Membership
from dedup.retries.aside import Partition
from dedup.rules.lanes.assigned import Assigned
from dedup.rules.lanes.lanes import Stretch, bar
from dedup.rules.record import Record
from dovecote.process.rarely import Rarely

_rarely = Rarely(logging.getLogger("dovecote.consumer.inbox"))

_OUTAGE_SECONDS = 1.0


class GroupClaims(Protocol):
    """Claims partitions: in the inbox, or in a list of a test."""

    def claim(self, partitions: Iterable[Partition]) -> list[int]: ...


class Claiming:
    """
    Claims a partition between two answers of the group, each confirming that it has this member.

    Without the first answer, a member that has lost the partition unknowingly could take the claim
    from the next owner. The second answer, after the claim, makes it valid: any later owner gets
    the partition after that, and claims it after that.
    """

    def __init__(
        self,
        claims: GroupClaims,
        membership: Membership,
        *,
        threads: Executor,
        refused: Callable[[], None],
    ) -> None:
        self._claims, self._membership, self._threads = claims, membership, threads
        self._refused = refused
        self._wanted: deque[Stretch[Record]] = deque()
        self._under_way: list[Stretch[Record]] = []
        self._numbers: Future[list[int]] | None = None
        self._not_before = 0.0
        self._since: float | None = None
        """Since when the group is asked; None: it is not."""

    def want(self, stretches: Iterable[Stretch[Record]]) -> None:
        """Request claims for stretches that are ready except for that; from any thread."""
        self._wanted.extend(stretches)

    # Called by the poll thread.

    def claimed(self, partitions: Collection[Assigned]) -> list[Stretch[Record]]:
        """Claim what is wanted or was refused; return the stretches that were claimed since."""
        if self._numbers is None:
            self._look_for_refused(partitions)
            if self._wanted and time.monotonic() >= self._not_before:
                self._begin(partitions)
        elif self._numbers.done():
            return self._end(self._numbers, partitions)
        return []

    def _look_for_refused(self, partitions: Iterable[Assigned]) -> None:
        for each in partitions:
            claim = each.stretch.claim
            if claim is not None and claim.refused and claim.refused == claim.number:
                claim.refused = 0
                self._refused()
                if each.stretch not in self._wanted:
                    self._wanted.append(each.stretch)

    def _begin(self, partitions: Iterable[Assigned]) -> None:
        # If nothing was polled yet there is no hurry.
        if self._is_confirmed(partitions):
            found = [self._wanted.popleft() for _ in range(len(self._wanted))]
            self._under_way = [stretch for stretch in found if stretch.live]
            places = [(each.topic, each.partition) for each in self._under_way]
            self._numbers = self._threads.submit(self._claims.claim, places)

    def _is_confirmed(self, partitions: Iterable[Assigned]) -> bool:
        """Return whether the group has confirmed this member since it was first asked here."""
        if self._since is None:
            self._since = time.monotonic()
        if not self._membership.confirmed(partitions, self._since):
            return False
        self._since = None
        return True

    def _end(
        self, numbers: Future[list[int]], partitions: Iterable[Assigned]
    ) -> list[Stretch[Record]]:
        error = numbers.exception()
        if error is None and not self._is_confirmed(partitions):
            return []
        stretches, self._under_way, self._numbers = self._under_way, [], None
        if error is not None:
            _rarely.warning("partitions cannot be claimed in the inbox, and wait: %s", error)
            bar(stretches, "it cannot be claimed in the inbox", error)
            self._not_before = time.monotonic() + _OUTAGE_SECONDS
            self._wanted.extend(stretches)
            return []
        for stretch, number in zip(stretches, numbers.result(), strict=True):
            if stretch.claim is not None:
                stretch.claim.number = number
        return [stretch for stretch in stretches if stretch.live]
