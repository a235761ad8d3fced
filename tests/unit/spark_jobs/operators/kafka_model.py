"""
Session windows of Kafka Streams, rule by rule, with stores that forget nothing.

Written from its description, not from the operator: three comparisons, not one.
"""

from collections.abc import Sequence
from typing import Any

from spark_jobs.operators.step import Input


class Kafka:
    """One task: a session store, and the stream time of its partition."""

    def __init__(self, gap: int, grace: int) -> None:
        self.gap, self.grace = gap, grace
        self.time = -1
        self.store: dict[tuple[str, int, int], list[Any]] = {}
        self.changes: list[tuple[Any, ...]] = []

    def take(self, record: Input) -> None:
        key, ts = (record.key or b"").decode(), record.time
        self.time = max(self.time, ts)
        found = sorted(
            (end, start)
            for k, start, end in self.store
            if k == key and end >= ts - self.gap and start <= ts + self.gap
        )
        merged: list[Any] = []
        start = end = ts
        for e, s in found:
            merged = merged + self.store[key, s, e]
            start, end = min(start, s), max(end, e)
        if end < self.time - self.grace - self.gap:
            return
        if (start, end) != (ts, ts):
            for e, s in found:
                del self.store[key, s, e]
                self.changes.append(("retract", key, s, e, None))
        self.store[key, start, end] = [*merged, record.value]
        self.changes.append(("update", key, start, end, [*merged, record.value]))


def updates(trace: Sequence[Input], gap: int, grace: int) -> list[tuple[Any, ...]]:
    kafka = Kafka(gap, grace)
    for record in trace:
        kafka.take(record)
    return kafka.changes


def final_by_suppress(trace: Sequence[Input], gap: int, grace: int) -> list[tuple[Any, ...]]:
    """Return what `suppress(untilWindowCloses)` lets through."""
    kafka, said = Kafka(gap, grace), []
    buffer: dict[tuple[str, int, int], list[Any]] = {}
    for record in trace:
        seen = len(kafka.changes)
        kafka.take(record)
        for kind, key, start, end, value in kafka.changes[seen:]:
            if kind == "retract":
                buffer.pop((key, start, end), None)
            else:
                buffer[key, start, end] = value
        due = [window for window in buffer if window[2] <= kafka.time - gap - grace]
        said += [(*window, buffer.pop(window)) for window in sorted(due, key=lambda w: w[2])]
    return said


def final_by_emit(trace: Sequence[Input], gap: int, grace: int) -> list[tuple[Any, ...]]:
    """Return the results of `EmitStrategy.onWindowClose`."""
    kafka, closed_to, said = Kafka(gap, grace), 0, []
    for record in trace:
        kafka.take(record)
        close = kafka.time - gap - grace
        if close > closed_to:
            said += [
                (*window, value)
                for window, value in sorted(kafka.store.items(), key=lambda w: w[0][2])
                if closed_to <= window[2] < close
            ]
            closed_to = close
    return said
