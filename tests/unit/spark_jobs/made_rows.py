"""Records as a test makes them, and as the client of Kafka gives them to a task."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from outbox.envelope import ATTEMPT, ID, ORIGIN, ROUND, Record
from spark_jobs.rows.packets import Pack, Read
from spark_jobs.rows.records import Message as Received
from spark_jobs.rows.records import Shipped, shipped


def record(
    offset: int,
    key: str | None = "k",
    *,
    id_: str | None = None,
    round_: int | None = None,
    value: bytes | None = b"{}",
) -> Record:
    headers = [] if id_ is None else [(ID, id_.encode())]
    if round_ is not None:
        history = ((ATTEMPT, "1"), (ROUND, str(round_)), (ORIGIN, "in/0/0"))
        headers += [(name, text.encode()) for name, text in history]
    time = 1_700_000_000_000 + offset
    return Record("in", 0, offset, time, None if key is None else key.encode(), value, headers)


def rows(*records: Record) -> Shipped:
    return Shipped([shipped(Message(each)) for each in records])


@dataclass(frozen=True)
class Message:
    """A record, in the form of the client's."""

    record: Record

    def topic(self) -> str:
        return self.record.topic

    def partition(self) -> int:
        return self.record.partition

    def offset(self) -> int:
        return self.record.offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self.record.timestamp

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> Any:
        return [*self.record.headers] or None


def read(records: Sequence[Record], *, expired: int = 0) -> Iterator[Read]:
    """Yield what a task reads: `records` by topic and partition, in the order of offsets."""
    ordered = sorted(records, key=lambda each: each[:3])
    for (topic, partition), group in groupby(ordered, lambda each: each[:2]):
        of = list(group)
        messages: list[Received] = [Message(each) for each in of]
        yield (topic, partition, of[0].offset, of[-1].offset + 1), messages, expired


def packed(pack: Pack, tasks: Iterable[Iterable[Read]]) -> dict[int, list[bytes]]:
    """Return the packets of each bucket, from several tasks."""
    by_bucket: dict[int, list[bytes]] = {}
    for task in tasks:
        for out in pack(task):
            assert isinstance(out, pa.RecordBatch)
            for row in out.to_pylist():
                by_bucket.setdefault(row["bucket"], []).append(row["packet"])
    return by_bucket
