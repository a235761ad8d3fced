"""Progress of a run: which of its records are completed, and what holds up the rest."""

import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Generic, Literal, TypeAlias, TypeVar

from dedup.retries.aside import Held, Placed, Unfinished
from dedup.rules.identity import Identity, are_told_apart
from dedup.rules.lanes.lanes import Lane, Run, Stretch
from dedup.rules.policies.policies import Failed, Handled, Skipped, Verdict
from dedup.rules.policies.results import Again, Dead, Early
from dedup.rules.policies.wording import plain
from dedup.rules.record import Record
from dedup.serving.handover import Completed, HandoverReport
from dovecote.process.rarely import Rarely, Sums
from outbox import envelope
from outbox.errors import InvalidEvent

_log = logging.getLogger("dovecote.consumer")
_skips = logging.getLogger("dovecote.consumer.skipped")
_rarely = Rarely(_log)
skips = Sums(_skips, "skipped")
"""The skips of this process, which a consumer logs once in a while."""

_FIRST_OUTAGE_SECONDS = 0.5
_LONGEST_OUTAGE_SECONDS = 30.0
_SHORTEST_SECONDS = 0.001

Unchosen: TypeAlias = Literal["alone", "distinct", "all"]
"""The runs for which no policy has to choose: single records, runs without duplicates, or any."""

V = TypeVar("V", Iterator[Verdict[Record]], AsyncIterator[Verdict[Record]])


class Over(BaseException):
    """
    A record is not begun, because its stretch is over.

    Not an `Exception`: policies treat those as the handler's result.
    """


@dataclass(slots=True)
class RunProgress(Generic[V]):
    """One run's verdicts, and the record that is not completed."""

    stretch: Stretch[Record]
    verdicts: V
    waiting: Record | None = None
    """The record that holds the lane; None: the next verdict can be taken."""

    unplaced: Unfinished | None = None
    """Its result, if it still needs a place; None: it is to be handled again."""

    unreleased: tuple[str, str] | None = None
    """Its outcome and reason for the metrics, if it was held and only has to be released."""

    scheduled: bool = False
    """Whether it waits for a time that was set for it; otherwise something is in its way."""

    was_held: bool = False
    burnt: int = 0
    """Attempts of the waiting record that failed here."""

    outages: int = 0
    won: bool = False
    """Whether the waiting record asked to come again, which is not a failure."""

    decided: int = 0
    """Number of the next verdicts that are reached already: they need no call of the handler."""

    skipped: list[Skipped[Record]] = field(default_factory=list)

    def attempt(self) -> int:
        """Return the number of the waiting record's last attempt, from 1."""
        return self.burnt + (1 if self.waiting is None else _attempt(self.waiting))

    def take(self, verdict: Verdict[Record], report: HandoverReport) -> float | None:
        """Take a verdict; return for how many seconds it holds the lane; None: it does not."""
        record = verdict.record
        self.decided, self.won = max(0, self.decided - 1), False
        match verdict:
            case Skipped(_, reason):
                self.skipped.append(verdict)
                self._complete(record, "skipped", report, kind(reason))
            case Failed(_, Early(error, after, scheduled)):
                self.waiting, self.was_held, self.scheduled = record, True, scheduled
                self.stretch.waits[record.offset] = error
                seconds = _seconds(after or timedelta(0))
                if scheduled:
                    self.stretch.due[record.offset] = time.monotonic() + seconds
                return seconds
            case Failed(_, result):
                self.waiting, self.unplaced = record, result
            case Handled(_, Again() as again):
                self.waiting, self.unplaced, self.won = record, again, True
            case Handled():
                self._complete(record, "handled", report)
        return None

    def answered(self, answer: Placed | Held, report: HandoverReport) -> float | None:
        """Take the place where the waiting record was put; returns as `take`."""
        record, result = self.waiting, self.unplaced
        if record is None or result is None:
            return None
        if isinstance(answer, Placed):
            self._complete(record, answer.where, report)
            return None
        attempt = max(self.attempt(), answer.attempt)
        self.was_held, self.scheduled, self.unplaced, self.outages = True, True, None, 0
        seconds = _seconds(answer.after)
        self.stretch.waits[record.offset] = "it asked to come again"
        if not isinstance(result, Again):
            self.burnt += 1
            self.stretch.waits[record.offset] = f"attempt {attempt} failed: {result.error}"
            _rarely.warning(
                "%s %s (attempt %d) and holds its key for %.1f s%s: %s",
                record.place,
                "is Dead" if isinstance(result, Dead) else "failed",
                attempt,
                seconds,
                ", as no dead_letter_topic is set" if answer.given_up else "",
                result.error,
            )
        return seconds

    def outage(self, error: Exception) -> float:
        """Return after how many seconds to try again to place the waiting record."""
        self.outages, self.scheduled = self.outages + 1, False
        # The power is bounded: an outage of days would overflow it.
        full = _FIRST_OUTAGE_SECONDS * 2.0 ** min(self.outages - 1, 10)
        seconds = min(full, _LONGEST_OUTAGE_SECONDS)
        where = "" if self.waiting is None else self.waiting.place
        if self.waiting is not None:
            told = f"it cannot be set aside: {type(error).__name__}: {plain(error)}"
            self.stretch.waits[self.waiting.offset] = told
        _rarely.warning(
            "%s cannot be set aside, and its offset is held back; again in %.1f s: %s: %s",
            where,
            seconds,
            type(error).__name__,
            plain(error),
        )
        return seconds

    def released(self, report: HandoverReport) -> None:
        """Complete the held record, now that its history is forgotten."""
        record, told = self.waiting, self.unreleased
        self.was_held, self.unreleased = False, None
        if record is not None and told is not None:
            self._complete(record, told[0], report, told[1])

    def leave(self) -> None:
        """Leave the waiting record to the partition's next owner, who gets it again."""
        if self.waiting is not None:
            self._forget_wait(self.waiting)
        self.waiting, self.unplaced, self.unreleased = None, None, None
        self.was_held, self.burnt, self.outages = False, 0, 0

    def report_skips(self) -> None:
        """Count the records that were skipped since the last call; with `debug`, log each run."""
        if not self.skipped:
            return
        alone = _skips.isEnabledFor(logging.DEBUG)
        for reason, group in groupby(self.skipped, lambda each: each.reason):
            records = [each.record for each in group]
            skips.add(kind(reason), len(records), partial(_said, records[0], reason))
            if alone:
                _skips.debug(
                    "%s/%d key %s: %d skipped, %s: %s",
                    records[0].topic,
                    records[0].partition,
                    ""
                    if records[0].key is None
                    else plain(records[0].key.decode(errors="backslashreplace")),
                    len(records),
                    plain(reason),
                    spans([each.offset for each in records]),
                )
        self.skipped = []

    def _complete(
        self, record: Record, as_what: str, report: HandoverReport, reason: str = ""
    ) -> None:
        self.waiting, self.unplaced, self.burnt, self.outages = None, None, 0, 0
        if self.stretch.waits:
            self._forget_wait(record)
        if self.was_held:
            self.waiting, self.unreleased = record, (as_what, reason)
        else:
            report.completed.append(Completed(self.stretch, record, as_what, reason))

    def _forget_wait(self, record: Record) -> None:
        self.stretch.waits.pop(record.offset, None)
        self.stretch.due.pop(record.offset, None)


def next_run(lane: Lane[Record]) -> Run[Record] | None:
    """Return the run to continue, as the lane's current one; None: there is none for now."""
    run = lane.current
    if run is None:
        try:
            run = lane.runs.popleft()
        except IndexError:
            return None
        lane.current = run
        if (read := run.stretch.read) is not None:
            run.records = read(run.records)
        if (claim := run.stretch.claim) is not None:
            for record in run.records:
                record.claim = claim
    if run.stretch is not lane.stretch:
        # It belongs to another assignment, for which the lane has to be taken again.
        return None
    return run


def records_from(record: Record, run: Run[Record]) -> Sequence[Record]:
    """Return the records of a run, beginning with `record`."""
    return [each for each in run.records if each.offset >= record.offset]


def need_no_choice(run: Run[Record], unchosen: Unchosen) -> bool:
    """Return whether all records of a run are handled, whatever the result of the first."""
    records = run.records
    if len(records) == 1 or unchosen == "all":
        return True
    if unchosen != "distinct":
        return False
    return are_told_apart(records) or len({each.identity for each in records}) == len(records)


def identity_of(record: Record) -> Identity:
    """Return the identity that duplicates share."""
    return record.identity


def kind(reason: str) -> str:
    """Return the kind of a reason, for metrics: filtered, superseded, duplicate or handler."""
    return reason.partition(" ")[0].rstrip(":")


def spans(offsets: list[int]) -> str:
    """Return ascending offsets as text: `3, 5-9`."""
    ends: list[list[int]] = []
    for offset in offsets:
        if ends and offset == ends[-1][1] + 1:
            ends[-1][1] = offset
        else:
            ends.append([offset, offset])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)


def _said(record: Record, reason: str) -> str:
    return f"{record.place} ({plain(reason)})"


def _attempt(record: Record) -> int:
    try:
        return envelope.delivery(record).attempt
    except InvalidEvent:
        return 1


def _seconds(after: timedelta) -> float:
    return max(after.total_seconds(), _SHORTEST_SECONDS)
