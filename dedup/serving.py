"""Serve a lane: its records through policy and handler, one after the other, in this thread."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeAlias

from dedup.aside import Aside
from dedup.batching import BatchHandler, Batching, together
from dedup.handover import Report
from dedup.lanes import Lane, Run
from dedup.policies import Policy, Verdict, attempt
from dedup.record import Record
from dedup.results import Done, Result, failure
from dedup.run_progress import RunProgress, Unchosen, identity_of, need_no_choice, next_run

Handle: TypeAlias = Callable[[Record], Result]
"""Handles a record; an exception stands for a result."""

Progress: TypeAlias = RunProgress[Iterator[Verdict[Record]]]

_YIELD = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A policy with all that it calls."""

    policy: Policy
    matches: Callable[[Record], bool]
    handle: Handle
    aside: Aside
    plain: bool
    """Records are handled, and that is all, where no policy has to choose among them."""

    unchosen: Unchosen

    batching: Batching | None = None
    handle_batch: BatchHandler | None = None
    """Where a handler takes several records: what it takes, and itself."""

    slice_seconds: float = 0.02
    """How long a lane is served at a time."""

    def serve_together(self, lanes: Sequence[Lane[Record]], report: Report) -> None:
        """Serve a run of each of these lanes, the handler called once."""
        if self.batching is not None and self.handle_batch is not None:
            chosen = self.batching.choose(lanes)
            records = [record for each in chosen for record in each.records()]
            answers = iter(together(records, self.handle_batch))
            for each in chosen:
                each.run.state = RunProgress(each.run.stretch, self._found(each.answered(answers)))
        for lane in lanes:
            self.serve(lane, report)

    def serve(self, lane: Lane[Record], report: Report) -> None:
        """Serve a lane until it has no more, its time is over, or a record holds it."""
        over = time.monotonic() + self.slice_seconds
        while (run := next_run(lane)) is not None:
            if not run.stretch.live:
                lane.current = None
                continue
            if self.plain and run.state is None and need_no_choice(run.records, self.unchosen):
                self._plainly(run, lane, report, over)
            else:
                seconds = self._advance(run, report, over)
                if seconds is None:
                    lane.current = None
                elif seconds > _YIELD:
                    report.held.append((lane, seconds))
                    return
            if self.batching is not None or time.monotonic() > over:
                break
        report.served.append(lane)

    def _found(
        self, verdicts: Iterator[Verdict[Record] | tuple[Record, None]]
    ) -> Iterator[Verdict[Record]]:
        for each in verdicts:
            yield attempt(each[0], self.handle) if isinstance(each, tuple) else each

    def _plainly(self, run: Run[Record], lane: Lane[Record], report: Report, over: float) -> None:
        """Handle records that no policy has to choose among, without what others need."""
        stretch, records, handle = run.stretch, run.records, self.handle
        for number, record in enumerate(records, 1):
            try:
                result = handle(record)
            except Exception as error:  # noqa: BLE001  # whatever a handler raises is its result
                result = failure(error)
            if type(result) is not Done:
                first = attempt(record, partial(_given, result))
                run.state = RunProgress(stretch, chain((first,), self._chosen(records[number:])))
                return
            report.handled.append((stretch, record))
            if number < len(records) and (not stretch.live or time.monotonic() > over):
                run.state = RunProgress(stretch, self._chosen(records[number:]))
                return
        lane.current = None

    def _advance(self, run: Run[Record], report: Report, over: float) -> float | None:
        """Go on with a run; return for how many seconds to hold the lane; None: it is over."""
        progress: Progress = run.state or self._begin(run)
        try:
            while True:
                waiting = progress.waiting
                seconds: float | None = None
                if waiting is not None and (progress.unreleased or progress.unplaced):
                    seconds = self._put_aside(waiting, progress, report)
                elif not run.stretch.live:
                    return None
                else:
                    verdict = (
                        next(progress.verdicts, None)
                        if waiting is None
                        else attempt(waiting, self.handle)
                    )
                    if verdict is None:
                        return None
                    seconds = progress.take(verdict, report)
                    if seconds is None and progress.waiting is None and time.monotonic() > over:
                        seconds = _YIELD
                if seconds is not None:
                    return seconds
        finally:
            progress.tell()

    def _put_aside(self, record: Record, progress: Progress, report: Report) -> float | None:
        try:
            if progress.unplaced is None:
                self.aside.released(record)
                progress.released(report)
                return None
            answer = self.aside.place(record, progress.unplaced, progress.attempt())
        except Exception as error:  # noqa: BLE001  # it is said, and the record stays where it is
            return progress.outage(error)
        return progress.answered(answer, report)

    def _begin(self, run: Run[Record]) -> Progress:
        run.state = progress = RunProgress(run.stretch, self._chosen(run.records))
        return progress

    def _chosen(self, records: Sequence[Record]) -> Iterator[Verdict[Record]]:
        return self.policy(records, matches=self.matches, handle=self.handle, identity=identity_of)


def _given(result: Result, _: Record) -> Result:
    return result
