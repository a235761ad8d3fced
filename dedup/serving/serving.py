# `python -m tests.twins` makes this from dedup/serving/awaited.py: change it there.
"""Serve a lane: pass its records through policy and handler, in sequence, in this thread."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dedup.retries.aside import Aside, HoldInPlace
from dedup.rules.lanes.lanes import Lane, Run, Stretch
from dedup.rules.policies.policies import Policy, Verdict, attempt
from dedup.rules.policies.results import Done, Early, Result, failure
from dedup.rules.record import Record, size_of
from dedup.serving.batching import DONE, Answer, Batching, Turns, answers_of, decided
from dedup.serving.certainty import UNCERTAIN_SECONDS, Certainty
from dedup.serving.handlers import checked
from dedup.serving.handover import HandoverReport
from dedup.serving.runs import (
    Over,
    RunProgress,
    Unchosen,
    identity_of,
    need_no_choice,
    next_run,
    records_from,
)

Handle: TypeAlias = Callable[[Record], Result]
"""Handles a record; an exception stands for a result."""

RecordHandler: TypeAlias = Callable[[Record], Result | None]
"""As `Handle`; None is `Done()`."""

BatchHandler: TypeAlias = Callable[[Sequence[Record]], Sequence[Result | None] | None]
"""Handles records, and returns one answer for each in turn; None: all are `Done()`."""

Progress: TypeAlias = RunProgress[Iterator[Verdict[Record]]]

_YIELD = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A policy with everything that it calls."""

    policy: Policy
    matches: Callable[[Record], bool]
    handle: Handle
    aside: Aside
    plain: bool
    """Whether to handle records and nothing else, if no policy has to choose among them."""

    unchosen: Unchosen

    batching: Batching | None = None
    handle_batch: BatchHandler | None = None
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

    def serve_together(self, lanes: Sequence[Lane[Record]], report: HandoverReport) -> None:
        """Serve a run of each of these lanes with one call of the handler."""
        certain = time.monotonic() <= self.certainty.until
        if certain and self.batching is not None and self.handle_batch is not None:
            chosen = self.batching.choose(lanes)
            records = [record for each in chosen for record in each.records()]
            stretches = [stretch for each in chosen for stretch in each.stretches()]
            answers = iter(together(records, self.handle_batch, stretches, self.certainty))
            for each in chosen:
                found, stretch = each.answered(answers), each.run.stretch
                each.run.state = RunProgress(
                    stretch, self._found(found, stretch), decided=decided(found)
                )
        for lane in lanes:
            self.serve(lane, report)

    def serve(self, lane: Lane[Record], report: HandoverReport) -> None:
        """Serve a lane until it is empty, its time is up, or a record holds it."""
        now = time.monotonic()
        over = now + self.slice_seconds
        while (run := next_run(lane)) is not None:
            seconds = self._go_on(run, report, now, over)
            if seconds is None:
                lane.current = None
            elif seconds > _YIELD:
                lane.scheduled = run.state is not None and run.state.scheduled
                report.held.append((lane, seconds))
                return
            if self.batching is not None or (now := time.monotonic()) > over:
                break
        report.served.append(lane)

    def _go_on(
        self, run: Run[Record], report: HandoverReport, now: float, over: float
    ) -> float | None:
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
                self._plainly(run, report, over)
                if run.state is None:
                    return None
                if not run.state.decided:
                    return _YIELD
        return self._advance(run, report, over)

    def _found(
        self, verdicts: Sequence[Verdict[Record] | tuple[Record, None]], stretch: Stretch[Record]
    ) -> Iterator[Verdict[Record]]:
        handle = self._while_live(stretch)
        for each in verdicts:
            yield attempt(each[0], handle) if isinstance(each, tuple) else each

    def _plainly(self, run: Run[Record], report: HandoverReport, over: float) -> None:
        """Handle records for which no policy has to choose, by a shorter path."""
        stretch, records, handle = run.stretch, run.records, self.handle
        last = len(records)
        for number, record in enumerate(records, 1):
            try:
                result = handle(record)
            except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
                result = failure(error)
            if type(result) is not Done:
                self.concluded(run, number, result)
                return
            report.handled.append((stretch, record.offset, size_of(record)))
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

    def _advance(self, run: Run[Record], report: HandoverReport, over: float) -> float | None:
        """Continue a run; return for how many seconds to hold the lane; None: the run is over."""
        progress: Progress = run.state
        try:
            while run.stretch.counts:
                waiting = progress.waiting
                seconds: float | None = None
                if waiting is not None and (progress.unreleased or progress.unplaced):
                    seconds = self._put_aside(waiting, progress, report)
                else:
                    verdict = self._next(progress, run)
                    if verdict is None:
                        return None
                    seconds = progress.take(verdict, report)
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

    def _next(self, progress: Progress, run: Run[Record]) -> Verdict[Record] | None:
        waiting = progress.waiting
        if waiting is not None:
            if not self.decides_anew or progress.won:
                return attempt(waiting, self._while_live(run.stretch))
            progress.verdicts = self._chosen(records_from(waiting, run), run.stretch)
        return next(progress.verdicts, None)

    def _put_aside(
        self, record: Record, progress: Progress, report: HandoverReport
    ) -> float | None:
        try:
            if progress.unplaced is None:
                self.aside.released(record)
                progress.released(report)
                return None
            answer = self.aside.place(record, progress.unplaced, progress.attempt())
        except Exception as error:  # noqa: BLE001  # it is logged, and the record stays where it is
            return progress.outage(error)
        return progress.answered(answer, report)

    def _begun(self, stretch: Stretch[Record], records: Sequence[Record]) -> Progress:
        ahead = len(records) if self.decides_ahead else 0
        return RunProgress(stretch, self._chosen(records, stretch), decided=ahead)

    def _chosen(
        self, records: Sequence[Record], stretch: Stretch[Record]
    ) -> Iterator[Verdict[Record]]:
        handle = self._while_live(stretch)
        return self.policy(records, matches=self.matches, handle=handle, identity=identity_of)

    def _while_live(self, stretch: Stretch[Record]) -> Handle:
        """Return the handler, which begins no record once the stretch is over, or may be."""

        def handle(record: Record) -> Result:
            if not stretch.live:
                raise Over
            if time.monotonic() > self.certainty.until:
                return self.certainty.doubt()
            return self.handle(record)

        return handle


def _first(
    record: Record, result: Result, rest: Iterator[Verdict[Record]]
) -> Iterator[Verdict[Record]]:
    yield attempt(record, lambda _: result)
    yield from rest


def answering(handler: RecordHandler, aside: Aside) -> Handle:
    """Return a handler that returns a result, and leaves a record alone that is not due."""
    early = aside.early

    def handle(record: Record) -> Result:
        after = early(record)
        if after is not None:
            return Early("not due", after, scheduled=True)
        result = handler(record)
        return DONE if result is None else checked(result)

    def handle_at_once(record: Record) -> Result:
        result = handler(record)
        return DONE if result is None else checked(result)

    # HoldInPlace never postpones a record, so skip the check: it would run tens of thousands of
    # times a second.
    return handle_at_once if type(aside) is HoldInPlace else handle


def alone(handle: BatchHandler) -> Handle:
    """Return a handler of one record that passes it on as a batch."""

    def handle_one(record: Record) -> Result:
        (answer,) = together([record], handle, (), Certainty())
        if isinstance(answer, Exception):
            raise answer
        return DONE if answer is None else answer

    return handle_one


def together(
    records: Sequence[Record],
    handle: BatchHandler,
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
        return list(answers_of(records, handle(records) if records else ()))
    except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
        if len(records) == 1:
            return [error]
    turns = Turns(certainty)
    for record, stretch in zip(records, stretches, strict=True):
        if turns.has(record, stretch):
            answers = together([record], handle, [stretch], certainty)
            turns.note(record, answers[0])
    return turns.answers
