"""The partitions of this consumer with their records, as polling and rebalances share them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from dedup.kafka.committing import Commits
from dedup.metrics import Metrics
from dedup.retries.aside import Partition
from dedup.rules.lanes.assigned import Assigned
from dedup.rules.lanes.lanes import Stretch
from dedup.rules.record import Record, size_of
from dedup.serving.handover import Handover, Workers
from dedup.settings.consumer import ConsumerSettings


class TellsOfSkips(Protocol):
    """Makes the span of a record that was skipped."""

    def skipped(self, record: Record, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Partitions:
    """Used by the poll thread only."""

    settings: ConsumerSettings
    handover: Handover
    workers: Workers
    commits: Commits
    metrics: Metrics
    spans: TellsOfSkips | None = None
    assigned: dict[Partition, Assigned] = field(default_factory=dict)

    def in_memory(self) -> tuple[int, int]:
        """Return how many records are in line or being handled, and their bytes."""
        partitions = self.assigned.values()
        return sum(each.records for each in partitions), sum(each.size for each in partitions)

    def collect(self) -> bool:
        """Take the results of turns of work; return whether a record was completed."""
        reports = self.handover.collect()
        if not reports:
            return False
        handled = held = 0
        results: Counter[tuple[str, str]] = Counter()
        by_stretch: dict[int, _Ended] = {}
        ended: _Ended | None = None
        for report in reports:
            handled += len(report.handled)
            held += len(report.held)
            for stretch, offset, size in report.handled:
                if ended is None or stretch is not ended.stretch:
                    ended = _of(stretch, by_stretch)
                ended.offsets.append(offset)
                ended.size += size
            for stretch, record, outcome, reason in report.completed:
                ended = _of(stretch, by_stretch)
                ended.offsets.append(record.offset)
                ended.size += size_of(record)
                results[outcome, reason] += 1
                if outcome == "skipped" and self.spans is not None:
                    self.spans.skipped(record, reason)
        for each in by_stretch.values():
            found = self.assigned.get((each.stretch.topic, each.stretch.partition))
            # Records that another assignment completed do not count in this one.
            if found is not None and found.stretch is each.stretch:
                found.completed(each.offsets, each.size)
        results["handled", ""] += handled
        self.metrics.completed(results, held)
        return bool(by_stretch)


@dataclass(slots=True, eq=False)
class _Ended:
    """The records of a stretch that were completed: their offsets, and their size in all."""

    stretch: Stretch[Record]
    offsets: list[int] = field(default_factory=list)
    size: int = 0


def _of(stretch: Stretch[Record], by_stretch: dict[int, _Ended]) -> _Ended:
    found = by_stretch.get(stretch.epoch)
    if found is None:
        by_stretch[stretch.epoch] = found = _Ended(stretch)
    return found
