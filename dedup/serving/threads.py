"""Threads that serve lanes: as many as are needed, up to the configured concurrency."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from dedup.rules.lanes.lanes import Lane
from dedup.rules.policies.departures import Exits
from dedup.rules.record import Record
from dedup.serving.handover import FOR_GOOD_SECONDS, Handover, HandoverReport, first_of

_TURN_SECONDS = 0.001
"""
Duration of a batch of work: a shorter one costs a lock per record, a longer one keeps others
waiting.
"""

_STUCK_SECONDS = 0.01
"""After this long, a thread's results and the lanes that it has not begun are taken from it."""

_SWIFT_SECONDS = 0.0002
"""Faster records are pure Python work, which more than a few threads do no faster."""

_SWIFT_THREADS = 2
_ASLEEP_SECONDS = 0.05
"""A thread whose turn takes this long is in a handler that waits."""

_WORTH_A_THREAD_SECONDS = 0.02
_MOST_RECORDS = 500
_WEIGHT = 0.1


class Serves(Protocol):
    """Serves lanes."""

    def serve(self, lane: Lane[Record], report: HandoverReport) -> None: ...
    def serve_together(self, lanes: Sequence[Lane[Record]], report: HandoverReport) -> None: ...


class Threads:
    """Serve lanes in threads, each thread one lane at a time."""

    def __init__(
        self,
        handover: Handover,
        serving: Serves,
        *,
        most: int,
        together: int = 1,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._handover, self._serving, self._most = handover, serving, most
        self._failed, self._together = failed, together
        self._threads: list[_Thread] = []
        self._idle = 0
        self._ending = False
        self._pace = _SWIFT_SECONDS / 2
        """Seconds that a record takes, as a moving average."""

    def wake(self, ready: int) -> None:
        """Make sure that somebody serves the lanes in line."""
        if ready:
            with self._handover.lock:
                self._wake()

    def reclaim(self, *, everything: bool = False) -> None:
        """
        Take back lanes that a slow thread (`everything`: any thread) has taken and not begun.
        """
        now = time.monotonic()
        stuck = [
            thread
            for thread in self._threads
            if (thread.chunk or thread.report)
            and (everything or now - thread.turned > _STUCK_SECONDS)
        ]
        if stuck:
            with self._handover.lock:
                for thread in stuck:
                    self._handover.put_back(thread.chunk)
                    if thread.report:
                        self._handover.settle(thread.report.taken())
                if not everything:
                    self._wake()

    def close(self) -> None:
        """Make the threads end once they are idle; those in a handler are left alone."""
        with self._handover.lock:
            self._ending = True
            self._handover.changed.notify_all()

    @property
    def oldest(self) -> float:
        """Seconds for which the longest-running turn has gone on."""
        now = time.monotonic()
        return max((now - t.turned for t in self._threads if t.working), default=0.0)

    # Callers of the following methods hold the lock.

    def _wake(self) -> None:
        """Wake another thread if the ones that are awake would take long."""
        ready = self._handover.lanes.ready
        if not ready:
            return
        if self._pace < _SWIFT_SECONDS:
            awake = self._awake()
            if awake >= (1 if ready * self._pace < _WORTH_A_THREAD_SECONDS else _SWIFT_THREADS):
                return
        if self._idle:
            self._idle -= 1
            self._handover.changed.notify()
        elif len(self._threads) < self._most:
            thread = _Thread(self._work)
            self._threads.append(thread)
            thread.start()

    def _awake(self) -> int:
        now = time.monotonic()
        asleep = sum(t.working and now - t.turned > _ASLEEP_SECONDS for t in self._threads)
        return len(self._threads) - self._idle - asleep

    def _take(self, chunk: deque[Lane[Record]]) -> bool:
        if self._together > 1:
            chunk.extend(self._handover.lanes.take(self._together))
            return bool(chunk)
        most = min(_MOST_RECORDS, max(1, int(_TURN_SECONDS / self._pace)))
        chunk.extend(self._handover.lanes.take(most))
        return bool(chunk)

    def _work(self, thread: "_Thread") -> None:
        try:
            while self._turn(thread):
                self._serve(thread)
        except Exits as error:
            self._failed(error)
            with self._handover.lock:
                self._handover.settle(thread.report.taken())
                thread.working = False
        except BaseException as error:  # whatever it is, the consumer must not go on without it
            self._failed(error)
            raise

    def _turn(self, thread: "_Thread") -> bool:
        """Hand in the result of the last turn and take the next; False: there is no next."""
        handover, chunk = self._handover, thread.chunk
        with handover.lock:
            handover.settle(thread.report)
            thread.report = HandoverReport()
            thread.working = False
            while not chunk and not self._take(chunk):
                if self._ending:
                    return False
                self._idle += 1
                # The notifier has counted this thread as awake already.
                handover.changed.wait()
            thread.working = True
            thread.turned = time.monotonic()
            self._wake()
        return True

    def _serve(self, thread: "_Thread") -> None:
        report, chunk = thread.report, thread.chunk
        began = time.monotonic()
        if self._together > 1:
            # All of them are begun at once: nobody may take one of them back.
            self._serving.serve_together(first_of(chunk, self._together), report)
        while True:
            try:
                lane = chunk.popleft()
            except IndexError:
                break
            try:
                self._serving.serve(lane, report)
            except Exits:
                # Nobody goes on with it: its record comes again, after the end of this process.
                report.held.append((lane, FOR_GOOD_SECONDS))
                raise
            if time.monotonic() - began > _TURN_SECONDS:
                break
        # Count those that are still here: if others were taken away meanwhile, the thread was slow
        # indeed.
        pace = (time.monotonic() - began) / max(1, report.records)
        self._pace += (pace - self._pace) * _WEIGHT


class _Thread(threading.Thread):
    """A thread, and the lanes that it has taken."""

    def __init__(self, work: Callable[["_Thread"], None]) -> None:
        super().__init__(name="lanes", daemon=True)
        self.chunk: deque[Lane[Record]] = deque()
        self.turned = time.monotonic()
        self.working = False
        self.report = HandoverReport()
        self._work = work

    def run(self) -> None:
        self._work(self)
