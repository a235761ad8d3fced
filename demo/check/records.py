"""What the witnesses say, as values: the service's log, Kafka's records, Spark's batches."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self


class Row(NamedTuple):
    """One event of a committed transaction, as the service logged it."""

    row: str
    id: str
    type: str
    flight: str
    number: int
    """Rises by one with each event of the flight."""


@dataclass(frozen=True)
class Record:
    """A record of Kafka, as any consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: bytes
    headers: Mapping[str, str]

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The value, which is a JSON object."""
        found = json.loads(self.value)
        if not isinstance(found, dict):
            msg = f"the value of {self.place} is not a JSON object"
            raise TypeError(msg)
        return found

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def id(self) -> str:
        return self.headers.get("ce_id", "")

    @property
    def type(self) -> str:
        return self.headers.get("ce_type", "")


class Batch(NamedTuple):
    """One micro-batch, as Spark planned it: from `start` on, up to before `end`, by partition."""

    number: int
    start: Mapping[int, int]
    end: Mapping[int, int]


class Counts(NamedTuple):
    """What became of the records of a batch."""

    rows: int = 0
    handled: int = 0
    filtered: int = 0
    superseded: int = 0
    duplicate: int = 0
    retried: int = 0
    dead: int = 0

    @classmethod
    def total(cls, counts: Iterable["Counts"]) -> Self:
        """Return the sum of `counts`."""
        return cls(*(sum(column) for column in zip(cls(), *counts, strict=True)))


class Marker(NamedTuple):
    """What one shuffle partition committed in one micro-batch."""

    query: str
    batch: int
    partition: int
    partitions: int
    ranges: Mapping[int, tuple[int, int]]
    """First and last offset, by partition of the topic."""

    counts: Counts


class Spark(NamedTuple):
    """What the checkpoint and the markers say."""

    query: str
    batches: list[Batch]
    uncommitted: list[int]
    """Batches that were planned and never finished."""

    markers: list[Marker]
