"""Tasks that serve lanes on one event loop, in a thread of its own."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from dedup.retries.aside import Aside, Held, Placed, Unfinished
from dedup.rules.lanes.lanes import Lane
from dedup.rules.policies.departures import Exits, HandlerExited
from dedup.rules.record import Record
from dedup.serving import ways_out
from dedup.serving.handover import FOR_GOOD_SECONDS, Handover, HandoverReport, first_of

_log = logging.getLogger("dovecote.consumer")

_TAKEN_AT_A_TIME = 200
_HAND_IN_SECONDS = 0.005
_BREATH_SECONDS = 0.005
_END_SECONDS = 2.0


class Desk(Protocol):
    """Where results are handed in. It has a new report after each await."""

    report: HandoverReport


class AsideInThreads:
    """An `Aside` whose calls may block, for callers on an event loop."""

    def __init__(self, aside: Aside, threads: Executor) -> None:
        self._aside, self._threads = aside, threads

    async def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._threads, self._aside.place, record, result, attempt)

    async def released(self, record: Record) -> None:
        run = asyncio.get_running_loop().run_in_executor
        await run(self._threads, self._aside.released, record)


class ServesAwaited(Protocol):
    """Serves lanes on a loop."""

    async def serve(self, lane: Lane[Record], desk: Desk) -> None: ...
    async def serve_together(self, lanes: Sequence[Lane[Record]], desk: Desk) -> None: ...


class ServesDirectly(Protocol):
    """Serves lanes on a loop, without tasks."""

    def takes(self, lane: Lane[Record]) -> bool: ...
    def end(self) -> None: ...

    @property
    def oldest(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The event loop of async handlers."""

    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop

    end: Callable[[], Awaitable[None]] | None = None
    """Awaited on the loop once no handler is running: closes what handlers opened there."""


class Tasks:
    """Serve lanes in tasks, each task one lane at a time; most of this runs on the loop."""

    def __init__(
        self,
        handover: Handover,
        serving: ServesAwaited,
        *,
        most: int,
        together: int = 1,
        failed: Callable[[BaseException], None],
        loop: Loop | None = None,
        directly: "Callable[[Tasks], ServesDirectly] | None" = None,
    ) -> None:
        """Begin to serve; `directly` makes what serves lanes without tasks, if it can."""
        self.report = HandoverReport()
        self._handover, self._serving, self._most = handover, serving, most
        self.failed, self._together = failed, together
        self._direct = None if directly is None else directly(self)
        self._taken: deque[Lane[Record]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0
        self._called = False
        self._ending = False
        self._handing_in = False
        self._breathed = time.monotonic()
        self._began: dict[int, float] = {}
        self._of = loop or Loop()
        self._loop = self._of.make()
        self._thread = threading.Thread(target=self._run, name="lanes", daemon=True)
        self._thread.start()

    # Called from other threads.

    def wake(self, ready: int) -> None:
        """Make sure that somebody serves the lanes in line."""
        if ready and not self._called and self._running < self._most:
            self._called = True
            with suppress(RuntimeError):  # the loop was stopped, which `_run` reports
                self._loop.call_soon_threadsafe(self._start)

    def reclaim(self, *, everything: bool = False) -> None:
        """
        With `everything`, take back lanes that no task has begun; otherwise tasks get to them.
        """
        if everything:
            with self._handover.lock:
                self._handover.put_back(self._taken)

    def close(self) -> None:
        """End the loop; handlers that have not returned are cancelled."""
        self._ending = True
        with suppress(RuntimeError):  # the loop was stopped, which `_run` has reported
            self._loop.call_soon_threadsafe(self._cancel_soon)
        self._thread.join(2 * _END_SECONDS)

    @property
    def oldest(self) -> float:
        """Seconds for which the longest-running lane has been served."""
        began = list(self._began.copy().values())
        if self._direct is not None and (directly := self._direct.oldest) is not None:
            began.append(directly)
        return time.monotonic() - min(began) if began else 0.0

    # On the loop.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # the consumer ends with it
            self.failed(error)
        else:
            if not self._ending:
                msg = (
                    "the event loop of the handlers was stopped, by a handler or by a library "
                    "that it calls; the records at work are not completed, and come again"
                )
                self.failed(HandlerExited(msg))
        finally:
            self._loop.close()

    def _cancel_soon(self) -> None:
        self._closing = self._loop.create_task(self._cancel())

    async def _cancel(self) -> None:
        if self._direct is not None:
            self._direct.end()
        tasks = list(self._tasks)
        for task in tasks:
            ways_out.cancel(task)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_END_SECONDS)
            if left:
                _log.warning(
                    "%d handlers go on although they were cancelled: they are left, and their "
                    "records come again",
                    len(left),
                )
        try:
            if self._of.end is not None:
                await asyncio.wait_for(self._of.end(), _END_SECONDS)
        finally:
            self._loop.stop()

    def _start(self) -> None:
        self._called = False
        while self._running < self._most and (lane := self.next(0)) is not None:
            self._running += 1
            if self._direct is None or not self._direct.takes(lane):
                self.in_task(lane)

    def in_task(
        self, lane: Lane[Record], first: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Serve a lane in a task, which does `first` before; it is one of those at work."""
        task = self._loop.create_task(self._work(lane, first))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not ways_out.was_cancelled(task):
                msg = (
                    "a task that serves records was cancelled, by a handler or by a library that "
                    "it calls; its records come again; cancel only tasks that the handler made"
                )
                self.failed(HandlerExited(msg))
        elif (error := task.exception()) is not None:
            self.failed(error)

    async def _work(
        self, one: Lane[Record], first: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        lane: Lane[Record] | None = one
        me = id(asyncio.current_task())
        self._began[me] = time.monotonic()
        try:
            if first is not None:
                await first()
            while lane is not None:
                self._began[me] = time.monotonic()
                if self._together > 1:
                    lanes = [lane, *first_of(self._taken, self._together - 1)]
                    await self._serving.serve_together(lanes, self)
                else:
                    await self._serve(lane)
                self.hand_in_soon()
                if time.monotonic() - self._breathed > _BREATH_SECONDS:
                    # A handler that never waits would block the loop for all others.
                    await asyncio.sleep(0)
                    self._breathed = time.monotonic()
                lane = self.next(1)
                if lane is not None and self._direct is not None and self._direct.takes(lane):
                    lane = None
        finally:
            del self._began[me]

    async def _serve(self, lane: Lane[Record]) -> None:
        try:
            await self._serving.serve(lane, self)
        except Exits:
            # Nobody goes on with it: its record comes again, after the end of this process.
            self.report.held.append((lane, FOR_GOOD_SECONDS))
            self.hand_in_soon()
            raise

    def next(self, over: int) -> Lane[Record] | None:
        """Return the next lane; if there is none, `over` tasks are about to end."""
        try:
            return self._taken.popleft()
        except IndexError:
            pass
        handover = self._handover
        with handover.lock:
            self._settle()
            self._taken.extend(handover.lanes.take(_TAKEN_AT_A_TIME))
            if self._taken:
                return self._taken.popleft()
            # Under the lock: the next thread that puts a lane in line must know that nobody will
            # look again.
            self._running -= over
            return None

    def hand_in_soon(self) -> None:
        if not self._handing_in:
            self._handing_in = True
            self._loop.call_later(_HAND_IN_SECONDS, self._hand_in)

    def _hand_in(self) -> None:
        self._handing_in = False
        with self._handover.lock:
            self._settle()
        self._start()

    def _settle(self) -> None:
        report = self.report
        if report:
            self.report = HandoverReport()
            self._handover.settle(report)
