"""
Small batches of a stateful job: `make bench-spark_small`.

The sessions job runs from Kafka to Kafka, each result once, with 100 rows at a time on a trigger
of 1 s. Every row reports a change, so that every batch writes. The benchmark measures:

- how long Spark takes for a batch (`triggerExecution`);
- how late a session is seen that the wall clock closes, counted from the beginning of the batch
  that took its record;
- the cost of the job while nothing comes, after all those batches: Java goes on compiling their
  code for a while.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, Message, Producer
from pyspark.sql import SparkSession

from benchmarks import harness, processors
from dovecote.devstack.kafka.java import java
from spark_jobs.query.configuring import configuration
from spark_jobs.query.progress import BatchLine, ends
from spark_jobs.query.session import close_session, open_session
from spark_jobs.query.watching import listening
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import JOBS, StatefulSettings

_CLOSE_SECONDS = 3.0
_TRIGGER_SECONDS = 1.0
_SECONDS = 60.0
_SOURCE, _OUTPUT = "bench-small", "bench-small-out"
Place: TypeAlias = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(eq=False)
class Heard:
    """Spark's reports on its batches."""

    progress: list[Mapping[str, Any]] = field(default_factory=list)
    lines: list[BatchLine] = field(default_factory=list)
    """The job's own: Spark counts packets, not rows."""

    def has(self, rows: int) -> bool:
        return sum(each.rows for each in self.lines) >= rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100, help="in a batch")
    parser.add_argument("--batches", type=int, default=30, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=60, help="batches before those")
    parser.add_argument("--partitions", type=int, default=2, help="of the shuffle")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
        for topic in (_SOURCE, _OUTPUT, "bench-small-dead"):
            harness.topic(stack, topic)
        bootstrap = stack.kafka.bootstrap
        settings = _settings(bootstrap, Path(folder), args.partitions)
        os.environ.update(java().environment())
        conf = configuration(settings.spark, master=f"local[{os.cpu_count()}]")
        spark = open_session(conf)
        try:
            _run(spark, settings, args, bootstrap)
        finally:
            close_session(spark)


def _run(
    spark: SparkSession, settings: StatefulSettings, args: argparse.Namespace, bootstrap: str
) -> None:
    heard, stop = Heard(), threading.Event()
    failures: list[BaseException] = []

    def job() -> None:
        try:
            stateful_job.run(settings, spark, show=heard.lines.append, stop=stop)
        except BaseException as error:
            failures.append(error)
            raise

    running = threading.Thread(target=job)
    running.start()
    try:
        with listening(spark, heard.progress.append, lambda _: None):
            places, closed = _feed(bootstrap, args, heard)
            _emit_batches(args, heard)
            _emit_closing(args, heard, places, closed)
            _idle(args, heard)
    finally:
        stop.set()
        running.join()
    if failures:
        raise SystemExit(f"the job has failed: {failures[0]}")


def _feed(
    bootstrap: str, args: argparse.Namespace, heard: Heard
) -> tuple[Mapping[bytes, Place], Mapping[bytes, float]]:
    """
    Send one batch after the other; wait until all sessions are closed.

    Returns where each record is, and when its session was seen to be closed.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = _consumer(bootstrap)
    closed: dict[bytes, float] = {}
    places: dict[bytes, Place] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"a record was not written: {error}")
        places[bytes(message.key() or b"")] = message.partition() or 0, message.offset() or 0

    total = args.warm_up + args.batches
    for number in range(total):
        for row in range(args.rows):
            producer.produce(_SOURCE, b"{}", b"%d-%d" % (number, row), on_delivery=delivered)
        producer.flush()
        _read(consumer, closed, partial(heard.has, (number + 1) * args.rows))
    _read(consumer, closed, lambda: len(closed) >= total * args.rows)
    consumer.close()
    return places, closed


def _read(consumer: Consumer, closed: dict[bytes, float], done: Callable[[], bool]) -> None:
    """Note closed sessions until `done`."""
    deadline = time.monotonic() + _SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"the job did not get on within {_SECONDS:g} s")
        message = consumer.poll(0.02)
        if message is None or message.error() is not None:
            continue
        value = json.loads(message.value() or b"{}")
        if value["kind"] == "result":
            closed.setdefault(value["key"].encode(), time.time())


def _consumer(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-small",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([_OUTPUT])
    return consumer


def _emit_batches(args: argparse.Namespace, heard: Heard) -> None:
    """Report the durations of batches whose rows all have one time."""
    full = [each for each in heard.progress if each["numInputRows"]][args.warm_up :]
    taken = [each["durationMs"]["triggerExecution"] / 1000 for each in full]
    harness.emit(
        "spark_small",
        rows_per_batch=args.rows,
        batches=len(full),
        warm_up_batches=args.warm_up,
        shuffle_partitions=args.partitions,
        **harness.percentiles(taken),
    )


def _emit_closing(
    args: argparse.Namespace,
    heard: Heard,
    places: Mapping[bytes, Place],
    closed: Mapping[bytes, float],
) -> None:
    late = [
        closed[key] - _taken(heard, place) - _CLOSE_SECONDS
        for key, place in places.items()
        if int(key.split(b"-")[0]) >= args.warm_up
    ]
    harness.emit(
        "spark_small_closing",
        sessions=len(late),
        trigger_s=_TRIGGER_SECONDS,
        close_after_s=_CLOSE_SECONDS,
        **harness.percentiles(late),
        max_ms=round(max(late) * 1000, 2),
        min_ms=round(min(late) * 1000, 2),
    )


def _taken(heard: Heard, place: Place) -> float:
    """Return when the batch began that took the record at `place`."""
    partition, offset = place
    batch = next(each for each in heard.progress if ends(each)[_SOURCE][partition] > offset)
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def _idle(args: argparse.Namespace, heard: Heard) -> None:
    """Report the cost of the job while nothing comes and nothing is due."""
    before, batches, began = processors.used(), len(heard.progress), time.monotonic()
    threading.Event().wait(args.idle_seconds)
    seconds = time.monotonic() - began
    used = processors.since(before)
    harness.emit(
        "spark_small_idle",
        seconds=round(seconds, 1),
        trigger_s=_TRIGGER_SECONDS,
        batches=len(heard.progress) - batches,
        cpu_share=round(sum(used.values()) / seconds, 3),
        **{f"{kind}_cpu_share": round(each / seconds, 3) for kind, each in used.items()},
    )


def _settings(bootstrap: str, folder: Path, partitions: int) -> StatefulSettings:
    return JOBS["sessions"].model_validate(
        {
            "kafka": {"bootstrap.servers": bootstrap},
            "source": {"topics": [_SOURCE], "starting_offsets": "earliest"},
            "operator": {
                "type": "sessions",
                "gap": "10s",
                "emit": "update",
                "close_after": f"{_CLOSE_SECONDS:g}s",
            },
            "output": {"topic": _OUTPUT, "dead_letter_topic": "bench-small-dead"},
            "spark": {
                "query": "bench-small",
                "checkpoint": str(folder / "checkpoint"),
                "shuffle_partitions": partitions,
                "trigger": f"{_TRIGGER_SECONDS:g}s",
            },
        }
    )


if __name__ == "__main__":
    main()
