"""One line per batch: the results of its rows, its speed, and how much is still to come."""

import json
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import add
from typing import Any

from spark_jobs.query.batch import BatchReport
from spark_jobs.sink.markers import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The results of a batch."""

    counts: Counts
    replayed: int
    """Shuffle partitions that an earlier run of the batch had written already."""
    newest: int
    """The newest timestamp among its rows, in milliseconds; 0: it has no rows."""
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For a stateful job, by stepped bucket: its keys, open items, and bytes."""
    misplaced: int = 0
    """Rows that lay in a partition where their key does not belong."""
    expired: int = 0
    """Offsets that the topics had deleted before they were read."""
    held: float = 0.0
    """For how many seconds the batch was held with nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """A batch as it is shown."""

    query: str
    batch: int
    rows: int
    handled: int
    skipped: Mapping[str, int]
    retried: int
    dead: int
    replayed: int
    seconds: float
    rows_per_s: float
    lag_rows: int
    lag_seconds: float
    misplaced: int = 0
    """Records that lay in a partition where Kafka's partitioner does not put their key."""
    expired: int = 0
    """Offsets that the topics had deleted before they were read."""
    restamped: int = 0
    """Records that got the time of writing, because their topic refuses their own."""
    keys: int = 0
    """For a stateful job: in the buckets that the batch touched."""
    open: int = 0
    """Open sessions, unpaired events and waiting records in them."""
    state_bytes: int = 0
    largest_bucket: int = 0

    def __str__(self) -> str:
        skipped = ", ".join(f"{kind} {count}" for kind, count in self.skipped.items()) or "none"
        replayed = f" | {self.replayed} partitions were written before" if self.replayed else ""
        state = (
            f" | state {self.keys} keys, {self.open} open, {self.state_bytes} bytes, "
            f"largest bucket {self.largest_bucket}"
            if self.state_bytes
            else ""
        )
        odd = f" | misplaced {self.misplaced}" if self.misplaced else ""
        odd += f" | expired {self.expired}" if self.expired else ""
        odd += f" | restamped {self.restamped}" if self.restamped else ""
        return (
            f"batch {self.batch}: {self.rows} rows | handled {self.handled} | skipped: {skipped} "
            f"| retried {self.retried} | dead {self.dead} | {self.seconds:.2f} s, "
            f"{self.rows_per_s:.0f} rows/s | lag {self.lag_rows} rows, {self.lag_seconds:.1f} s"
            f"{odd}{state}{replayed}"
        )

    def json(self) -> str:
        fields = asdict(self)
        if not self.state_bytes:
            for name in ("keys", "open", "state_bytes", "largest_bucket"):
                del fields[name]
        return json.dumps(fields)


def summary(reports: Sequence[BatchReport], *, held: float = 0.0) -> Summary:
    """Return the sum of the reports of a batch's tasks."""
    return Summary(
        counts=reduce(add, (report.counts for report in reports), Counts()),
        replayed=sum(report.replayed for report in reports),
        misplaced=sum(report.misplaced for report in reports),
        expired=sum(report.expired for report in reports),
        newest=max((report.newest for report in reports), default=0),
        buckets=dict(ChainMap(*(dict(report.buckets) for report in reports))),
        held=held,
    )


def line(query: str, progress: Mapping[str, Any], done: Summary, *, now: int) -> BatchLine:
    """Return the line of a batch, from Spark's `progress` (its JSON) and the batch's results."""
    seconds = max(0.0, progress["durationMs"].get("triggerExecution", 0) / 1000 - done.held)
    behind = sum(lags(progress).values())
    counts = done.counts
    keys, opened, sizes = zip(*done.buckets.values(), strict=True) if done.buckets else ((),) * 3
    return BatchLine(
        query=query,
        batch=progress["batchId"],
        rows=counts.rows,
        handled=counts.handled,
        skipped=counts.skipped,
        retried=counts.retried,
        dead=counts.dead,
        replayed=done.replayed,
        seconds=seconds,
        rows_per_s=round(counts.rows / seconds, 1) if seconds else 0.0,
        lag_rows=behind,
        lag_seconds=round(max(0, now - done.newest) / 1000, 3) if behind and done.newest else 0.0,
        misplaced=done.misplaced,
        expired=done.expired,
        restamped=counts.restamped,
        keys=sum(keys),
        open=sum(opened),
        state_bytes=sum(sizes),
        largest_bucket=max(sizes, default=0),
    )


def lags(progress: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return how many offsets of each partition were still unread after the batch."""
    found: dict[tuple[str, int], int] = {}
    ended = ends(progress)
    for topic, partition, latest in _offsets(progress, "latestOffset"):
        end = ended.get(topic, {}).get(partition, 0)
        found[topic, partition] = max(0, latest - end)
    return found


def lacks_ends_of_topics(progress: Mapping[str, Any]) -> bool:
    """Return whether Spark reports what was read, and not what there is: a batch came again."""
    return any(
        each.get("endOffset") and not each.get("latestOffset") for each in progress["sources"]
    )


def with_ends_of_topics(progress: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return `progress` with the ends of its topics, where Spark does not report them."""
    sources = [
        {**each, "latestOffset": each.get("latestOffset") or found} for each in progress["sources"]
    ]
    return {**progress, "sources": sources}


def ends(progress: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Return the next offset to read after the batch, by topic and partition."""
    found: dict[str, dict[int, int]] = {}
    for topic, partition, offset in _offsets(progress, "endOffset"):
        found.setdefault(topic, {})[partition] = offset
    return found


def _offsets(progress: Mapping[str, Any], which: str) -> Iterator[tuple[str, int, int]]:
    for source in progress["sources"]:
        for topic, partitions in (source.get(which) or {}).items():
            for partition, offset in partitions.items():
                if partition.isdigit():  # the topic's id is beside them
                    yield topic, int(partition), offset
