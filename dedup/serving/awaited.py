"""
Serve a lane: pass its records through policy and async handler, in sequence, on an event loop.

`python -m tests.twins` makes `dedup.serving.serving` from this module: the same in a thread.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dedup.retries.aside import Aside, HoldInPlace
from dedup.rules.lanes.lanes import Lane, Run, Stretch
from dedup.rules.policies.policies import AwaitedPolicy, Verdict, attempt, attempt_awaited
from dedup.rules.policies.results import Done, Early, Result, failure
from dedup.rules.record import Record, size_of
from dedup.serving.batching import DONE, Answer, Batching, Turns, answers_of, decided
from dedup.serving.certainty import UNCERTAIN_SECONDS, Certainty
from dedup.serving.handlers import checked
from dedup.serving.runs import (
    Over,
    RunProgress,
    Unchosen,
    identity_of,
    need_no_choice,
    next_run,
    records_from,
)
from dedup.serving.tasks import AsideInThreads, Desk

AwaitedHandle: TypeAlias = Callable[[Record], Awaitable[Result]]
"""Handles a record; an exception stands for a result."""

AwaitedRecordHandler: TypeAlias = Callable[[Record], Awaitable[Result | None]]
"""As `AwaitedHandle`; None is `Done()`."""

AwaitedBatchHandler: TypeAlias = Callable[
    [Sequence[Record]], Awaitable[Sequence[Result | None] | None]
]
"""Handles records, and returns one answer for each in turn; None: all are `Done()`."""

Progress: TypeAlias = RunProgress[AsyncIterator[Verdict[Record]]]

_YIELD = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedServing:
    """A policy with everything that it calls."""

    policy: AwaitedPolicy
    matches: Callable[[Record], bool]
    handle: AwaitedHandle
    aside: AsideInThreads
    plain: bool
    """Whether to handle records and nothing else, if no policy has to choose among them."""

    unchosen: Unchosen

    batching: Batching | None = None
    handle_batch: AwaitedBatchHandler | None = None
    """Most records that a batch handler takes, and the handler itself."""

    decides_ahead: bool = False
    """Whether the policy has finished calling the handler before its first verdict."""

    decides_anew: bool = False
    """
    Whether the policy chooses again when a record is handled again; other records may then lose.
    """

    certainty: Certainty = field(default_factory=Certainty)

    slice_seconds: float = 0.02
    """How long a lane is served at a time."""

    async def serve_together(self, lanes: Sequence[Lane[Record]], desk: Desk) -> None:
        """Serve a run of each of these lanes with one call of the handler."""
        certain = time.monotonic() <= self.certainty.until
        if certain and self.batching is not None and self.handle_batch is not None:
            chosen = self.batching.choose(lanes)
            records = [record for each in chosen for record in each.records()]
            stretches = [stretch for each in chosen for stretch in each.stretches()]
            answers = iter(
                await together_awaited(records, self.handle_batch, stretches, self.certainty)
            )
            for each in chosen:
                found, stretch = each.answered(answers), each.run.stretch
                each.run.state = RunProgress(
                    stretch, self._found(found, stretch), decided=decided(found)
                )
        for lane in lanes:
            await self.serve(lane, desk)

    async def serve(self, lane: Lane[Record], desk: Desk) -> None:
        """Serve a lane until it is empty, its time is up, or a record holds it."""
        now = time.monotonic()
        over = now + self.slice_seconds
        while (run := next_run(lane)) is not None:
            seconds = await self._go_on(run, desk, now, over)
            if seconds is None:
                lane.current = None
            elif seconds > _YIELD:
                lane.scheduled = run.state is not None and run.state.scheduled
                desk.report.held.append((lane, seconds))
                return
            if self.batching is not None or (now := time.monotonic()) > over:
                break
        desk.report.served.append(lane)

    async def _go_on(self, run: Run[Record], desk: Desk, now: float, over: float) -> float | None:
        """As `_advance`, for a run that may not have begun."""
        if run.state is None:
            if not run.stretch.live:
                return None
            if now > self.certainty.until:
                self.certainty.doubt()
                return UNCERTAIN_SECONDS
            if not self.is_plain(run):
                run.state = self._begun(run.stretch, run.records)
            else:
                await self._plainly(run, desk, over)
                if run.state is None:
                    return None
                if not run.state.decided:
                    return _YIELD
        return await self._advance(run, desk, over)

    async def _found(
        self, verdicts: Sequence[Verdict[Record] | tuple[Record, None]], stretch: Stretch[Record]
    ) -> AsyncIterator[Verdict[Record]]:
        handle = self._while_live(stretch)
        for each in verdicts:
            yield await attempt_awaited(each[0], handle) if isinstance(each, tuple) else each

    async def _plainly(self, run: Run[Record], desk: Desk, over: float) -> None:
        """Handle records for which no policy has to choose, by a shorter path."""
        stretch, records, handle = run.stretch, run.records, self.handle
        last = len(records)
        for number, record in enumerate(records, 1):
            try:
                result = await handle(record)
            except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
                result = failure(error)
            if type(result) is not Done:
                self.concluded(run, number, result)
                return
            desk.report.handled.append((stretch, record.offset, size_of(record)))
            if number < last and (not stretch.live or time.monotonic() > over):
                run.state = self._begun(stretch, records[number:])
                return

    def concluded(self, run: Run[Record], number: int, result: Result) -> None:
        """Note how the record of a run ended that has this number; those before are done."""
        rest = self._chosen(run.records[number:], run.stretch)
        verdicts = _first(run.records[number - 1], result, rest)
        run.state = RunProgress(run.stretch, verdicts, decided=1)

    def is_plain(self, run: Run[Record]) -> bool:
        """Return whether the records of a run are handled and nothing else, one by one."""
        return self.plain and need_no_choice(run, self.unchosen)

    async def _advance(self, run: Run[Record], desk: Desk, over: float) -> float | None:
        """Continue a run; return for how many seconds to hold the lane; None: the run is over."""
        progress: Progress = run.state
        try:
            while run.stretch.counts:
                waiting = progress.waiting
                seconds: float | None = None
                if waiting is not None and (progress.unreleased or progress.unplaced):
                    seconds = await self._put_aside(waiting, progress, desk)
                else:
                    verdict = await self._next(progress, run)
                    if verdict is None:
                        return None
                    seconds = progress.take(verdict, desk.report)
                    # Verdicts that were reached but not reported would be lost if the stretch
                    # ended meanwhile.
                    undecided = progress.waiting is None and not progress.decided
                    if seconds is None and undecided and time.monotonic() > over:
                        seconds = _YIELD
                if seconds is not None:
                    if run.stretch.live:
                        return seconds
                    if seconds > _YIELD:
                        progress.leave()
        except Over:
            return None
        else:
            return None
        finally:
            progress.report_skips()

    async def _next(self, progress: Progress, run: Run[Record]) -> Verdict[Record] | None:
        waiting = progress.waiting
        if waiting is not None:
            if not self.decides_anew or progress.won:
                return await attempt_awaited(waiting, self._while_live(run.stretch))
            progress.verdicts = self._chosen(records_from(waiting, run), run.stretch)
        return await anext(progress.verdicts, None)

    async def _put_aside(self, record: Record, progress: Progress, desk: Desk) -> float | None:
        try:
            if progress.unplaced is None:
                await self.aside.released(record)
                progress.released(desk.report)
                return None
            answer = await self.aside.place(record, progress.unplaced, progress.attempt())
        except Exception as error:  # noqa: BLE001  # it is logged, and the record stays where it is
            return progress.outage(error)
        return progress.answered(answer, desk.report)

    def _begun(self, stretch: Stretch[Record], records: Sequence[Record]) -> Progress:
        ahead = len(records) if self.decides_ahead else 0
        return RunProgress(stretch, self._chosen(records, stretch), decided=ahead)

    def _chosen(
        self, records: Sequence[Record], stretch: Stretch[Record]
    ) -> AsyncIterator[Verdict[Record]]:
        handle = self._while_live(stretch)
        return self.policy(records, matches=self.matches, handle=handle, identity=identity_of)

    def _while_live(self, stretch: Stretch[Record]) -> AwaitedHandle:
        """Return the handler, which begins no record once the stretch is over, or may be."""

        async def handle(record: Record) -> Result:
            if not stretch.live:
                raise Over
            if time.monotonic() > self.certainty.until:
                return self.certainty.doubt()
            return await self.handle(record)

        return handle


async def _first(
    record: Record, result: Result, rest: AsyncIterator[Verdict[Record]]
) -> AsyncIterator[Verdict[Record]]:
    yield attempt(record, lambda _: result)
    async for verdict in rest:
        yield verdict


def answering_awaited(handler: AwaitedRecordHandler, aside: Aside) -> AwaitedHandle:
    """Return a handler that returns a result, and leaves a record alone that is not due."""
    early = aside.early

    async def handle(record: Record) -> Result:
        after = early(record)
        if after is not None:
            return Early("not due", after, scheduled=True)
        result = await handler(record)
        return DONE if result is None else checked(result)

    async def handle_at_once(record: Record) -> Result:
        result = await handler(record)
        return DONE if result is None else checked(result)

    # HoldInPlace never postpones a record, so skip the check: it would run tens of thousands of
    # times a second.
    return handle_at_once if type(aside) is HoldInPlace else handle


def alone_awaited(handle: AwaitedBatchHandler) -> AwaitedHandle:
    """Return a handler of one record that passes it on as a batch."""

    async def handle_one(record: Record) -> Result:
        (answer,) = await together_awaited([record], handle, (), Certainty())
        if isinstance(answer, Exception):
            raise answer
        return DONE if answer is None else answer

    return handle_one


async def together_awaited(
    records: Sequence[Record],
    handle: AwaitedBatchHandler,
    stretches: Sequence[Stretch[Record]],
    certainty: Certainty,
) -> list[Answer]:
    """
    Return the answer for each record; `stretches` has the stretch of each in the same place.

    If the handler raises for several records, each is handled alone, so that one does not fail the
    rest. A record is left out if an earlier one of its key was not finished, or if its stretch is
    over by then, or may be.
    """
    try:
        return list(answers_of(records, await handle(records) if records else ()))
    except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
        if len(records) == 1:
            return [error]
    turns = Turns(certainty)
    for record, stretch in zip(records, stretches, strict=True):
        if turns.has(record, stretch):
            answers = await together_awaited([record], handle, [stretch], certainty)
            turns.note(record, answers[0])
    return turns.answers
