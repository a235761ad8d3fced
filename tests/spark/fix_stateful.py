"""Stateful jobs with topics of their own in the one Spark, and replay's results for a trace."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from dedup.replay.replay import replay
from dovecote.devstack import Stack
from outbox.envelope import Pair, Record
from spark_jobs.operators.replay import TracedOperator
from spark_jobs.query.progress import BatchLine
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import JOBS, StatefulSettings
from tests.spark.fix_spark import AN_HOUR, PARTITIONS, as_record, in_thread
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import consume, patient, until

START_SECONDS = 120.0


@dataclass(frozen=True)
class Sent:
    """A record for a source topic."""

    topic: str
    key: str | None
    time: int
    value: Any
    partition: int = 0
    headers: Sequence[Pair] = ()


@dataclass(frozen=True)
class Stateful:
    """A stateful job with topics and a checkpoint of its own."""

    kafka: str
    folder: Path
    name: str
    tables: Mapping[str, Mapping[str, object]]
    """The settings in the form of a file."""
    spark: SparkSession
    lines: list[BatchLine] = field(default_factory=list)

    @property
    def settings(self) -> StatefulSettings:
        return JOBS[self.name].model_validate(self.tables)

    def with_(self, **tables: Mapping[str, object]) -> "Stateful":
        """Return the same job with other settings in some tables."""
        changed = {
            name: {**self.tables.get(name, {}), **fields} for name, fields in tables.items()
        }
        return replace(self, tables={**self.tables, **changed})

    def send(self, *records: Sent) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for each in records:
            producer.produce(
                each.topic,
                json.dumps(each.value).encode(),
                each.key,
                partition=each.partition,
                timestamp=each.time,
                headers=list(each.headers),
            )
        assert producer.flush(patient(30)) == 0

    def running(self, *, adopt: bool = False) -> AbstractContextManager[list[BaseException]]:
        """Run the job meanwhile, and yield its errors; it ends between two batches."""
        return in_thread(
            lambda stop: stateful_job.run(
                self.settings, self.spark, show=self.lines.append, stop=stop, adopt=adopt
            ),
            within=START_SECONDS,
        )

    def run_until(self, done: Callable[[], object], what: str, *, adopt: bool = False) -> None:
        with self.running(adopt=adopt) as failed:
            until(lambda: failed or done(), within=START_SECONDS, what=what)

    def rows(self) -> int:
        return sum(line.rows for line in self.lines)

    def written(self) -> list[Record]:
        return self._records(self.settings.output.topic)

    def values(self) -> list[Any]:
        return [json.loads(each.value or b"null") for each in self.written()]

    def late(self) -> list[Record]:
        return self._records(self.settings.output.late_topic or "")

    def dead_letters(self) -> list[Record]:
        return self._records(self.settings.output.dead_letter_topic)

    def replayed(self, records: Iterable[Sent], *, at: int) -> list[dict[str, Any]]:
        """Return replay's results for `records`, and for the time until `at`."""
        offsets: dict[tuple[str, int], int] = {}
        lines: list[dict[str, Any]] = []
        for each in records:
            place = (each.topic, each.partition)
            offsets[place] = offsets.get(place, -1) + 1
            lines.append(
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": offsets[place],
                    "timestamp": each.time,
                    "key": each.key,
                    "value": each.value,
                }
            )
        trace = [json.dumps(line).encode() for line in [*lines, {"advance_to": at}]]
        return [dict(line) for line in replay(TracedOperator(self.settings.operator), trace)]

    def file(self) -> Path:
        """Write the settings to a file, and return it."""
        path = self.folder / "job.toml"
        path.write_text(
            "\n".join(
                line
                for table, fields in self.tables.items()
                for line in (f"[{table}]", *(f'"{k}" = {_toml(v)}' for k, v in fields.items()))
            )
        )
        return path

    def _records(self, topic: str) -> list[Record]:
        return [as_record(message) for message in consume(self.kafka, topic)]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    return json.dumps(value)


MakeStateful = Callable[..., Stateful]


def summing(stateful: MakeStateful, clicks: str) -> Stateful:
    """Return a job that sums clicks in sessions, and reads a hundred of them in a batch."""
    return stateful(
        "sessions",
        [clicks],
        gap="5s",
        close_after="2s",
        stream_time="per_partition",
        aggregate="sum",
        max_lag="off",
    ).with_(source={"max_offsets_per_trigger": 100})


def made_clicks(topic: str, count: int) -> list[Sent]:
    """Return clicks of ten keys in two partitions."""
    return [Sent(topic, f"k{n % 10}", T0 + n * 700, n, n % 10 % 2) for n in range(count)]


def sums(values: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Count the sessions and their sums."""
    return Counter((each["key"], each["start"], each["end"], each["value"]) for each in values)


@pytest.fixture
def stateful(stack: Stack, topic: MakeTopic, tmp_path: Path, spark: SparkSession) -> MakeStateful:
    """Makes stateful jobs: their name, their source topics, and fields of `[operator]`."""

    def make(name: str, topics: Sequence[str], **operator: object) -> Stateful:
        query = f"test-{uuid4().hex[:12]}"
        tables: dict[str, Mapping[str, object]] = {
            "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
            "source": {"topics": list(topics), "starting_offsets": "earliest"},
            "operator": {"type": name, **operator},
            "output": {
                "topic": topic(2, message_timestamp_after_max_ms=AN_HOUR),
                "late_topic": topic(),
                "dead_letter_topic": topic(),
            },
            "state": {"buckets": 3},
            "spark": {
                "query": query,
                "checkpoint": str(tmp_path / query),
                "shuffle_partitions": PARTITIONS,
                "trigger": "100ms",
            },
        }
        return Stateful(stack.kafka.bootstrap, tmp_path, name, tables, spark)

    return make


# Recent, because the broker deletes records by their timestamps.
T0 = time.time_ns() // 1_000_000 - 3_600_000
