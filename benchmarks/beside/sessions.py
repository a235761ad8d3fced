"""
The sessions job beside Flink and Kafka Streams, from topic to topic, exactly once.

The job fills the topic, and the peers read the same one. The sessions that each
has written are compared with a model of the records on the topic.
"""

import argparse
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from benchmarks import harness, spark_sessions, stateful
from benchmarks.beside import flink, tools
from benchmarks.beside.figures import Figures
from benchmarks.beside.model import Session, closed, differences, sessions
from benchmarks.beside.turns import Contender, Turns, Wanted
from benchmarks.beside.written import committed
from benchmarks.work import START
from dovecote.devstack import Stack

ROWS = 2_000_000
"""Half of them warm up."""

BATCHES = 5
_BUCKETS = 16
_GAP, _GRACE = 10_000, 5_000
_OURS = "bench-out"
_WHAT = "in order per key, exactly once; JSON parsed and written"
_SESSIONS = Mapping[Session, tuple[int, ...]]


@dataclass
class Place:
    """The servers of one round, and what is on the topic once the job has filled it."""

    stack: Stack
    folder: Path
    rows: int
    """Rows that count, and as many before them that warm up."""

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return self.stack.kafka.bootstrap

    @property
    def topic(self) -> str:
        """The topic with the records."""
        return spark_sessions.WORK.topics[0]

    @cached_property
    def right(self) -> _SESSIONS:
        """All sessions of the records, in Dovecote's and in Flink's sense."""
        numbers: dict[bytes, list[int]] = {}
        for each in committed(self.bootstrap, self.topic):
            numbers.setdefault(each.key() or b"", []).append(json.loads(each.value() or b"")["id"])
        return sessions(numbers, _GAP)


def run(wanted: Wanted) -> bool:
    """Measure them in turn; return whether one has failed."""
    contenders = [
        Contender("dovecote", _WHAT, _job, ours=True),
        *(_flink(backend) for backend in ("hashmap", "rocksdb")),
        Contender(
            "kafka_streams",
            "in order per key, exactly once; no JSON, each change is written",
            _streams,
            prepare=lambda: tools.fetched(spark_sessions.JARS),
        ),
    ]
    turns = Turns("sessions", contenders)
    for turn in range(wanted.rounds):
        with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
            turns.take(Place(stack, Path(folder), wanted.of(ROWS) // 2), turn)
    return turns.failed


def arguments(rows: int) -> argparse.Namespace:
    """Return what the benchmarks of the stateful jobs are told, for so many rows that count."""
    return argparse.Namespace(
        rows=max(1, rows // BATCHES),
        batches=BATCHES,
        warm_up=BATCHES,
        partitions=os.cpu_count(),
        buckets=_BUCKETS,
    )


def _job(place: Place) -> Figures:
    _, found = stateful.run(arguments(place.rows), spark_sessions.WORK, place.folder, place.stack)
    # A session is closed by a later record of its key; the last ones of the topic stay open.
    differ = differences(
        closed(place.right, _GAP + _GRACE), _json_sessions(place.bootstrap, _OURS)
    )
    return Figures(
        per_s=found.rows / found.seconds,
        cpu_us=sum(found.cpu.values()) / found.rows * 1e6,
        **differ._asdict(),
    )


def _flink(backend: str) -> Contender[Place]:
    def measure(place: Place) -> Figures:
        output = harness.topic_at(place.bootstrap)
        job = flink.Job(
            "sessions",
            place.bootstrap,
            place.topic,
            output,
            warm_up=place.rows,
            records=place.rows,
            backend=backend,
        )
        # At the end of the topic it closes all that are open.
        told = flink.run(job)
        differ = differences(place.right, _json_sessions(place.bootstrap, output))
        return flink.figures(told, differ._asdict())

    return flink.contender(backend, _WHAT, measure)


def _streams(place: Place) -> Figures:
    output = harness.topic_at(place.bootstrap, f"streams-{uuid4().hex[:12]}-out")
    try:
        told = spark_sessions.streams(
            (place.bootstrap, place.topic, output),
            "exactly_once_v2",
            warm_up=place.rows,
            records=place.rows,
        )
    except SystemExit as error:
        raise tools.PeerFailed(str(error)) from error
    # It writes each change: the latest of each session is the result, and one without a value
    # says that another session has taken it in.
    latest: dict[Session, tuple[int, ...] | None] = {}
    for each in committed(place.bootstrap, output):
        key, _, start = (each.key() or b"").partition(b"@")
        value = each.value()
        latest[key, int(start) - START] = None if value is None else _numbers(value)
    differ = differences(
        place.right, ((where, ids) for where, ids in latest.items() if ids is not None)
    )
    return Figures(
        per_s=place.rows / told["seconds"],
        cpu_us=told["cpu_seconds"] / place.rows * 1e6,
        closing_s=told["closing_seconds"],
        **differ._asdict(),
    )


def _numbers(value: bytes) -> tuple[int, ...]:
    return tuple(sorted(struct.unpack(f">{len(value) // 8}q", value)))


def _json_sessions(bootstrap: str, topic: str) -> Iterator[tuple[Session, Sequence[int]]]:
    for each in committed(bootstrap, topic):
        told = json.loads(each.value() or b"")
        yield (told["key"].encode(), told["start"] - START), tuple(sorted(told["value"]))
