"""
Small batches of a stateful job: `make bench-spark_small`.

100 rows at a time, on a trigger of 1 s, go through the sessions job, Kafka to Kafka, each
result once; every row says a change, so that every batch writes. How long Spark takes for a
batch (`triggerExecution`); by how much a session that the wall clock closes is seen too late; and
what the job costs when nothing comes.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession

from benchmarks import harness, processors
from devstack.jars import spark_kafka_jars
from devstack.java import java
from spark_jobs import stateful_job
from spark_jobs.listening import listening
from spark_jobs.session import close_session, configuration, open_session
from spark_jobs.stateful_settings import JOBS, StatefulSettings

_CLOSE_SECONDS = 3.0
_TRIGGER_SECONDS = 1.0
_SECONDS = 60.0
_SOURCE, _OUTPUT = "bench-small", "bench-small-out"


@dataclass(eq=False)
class Heard:
    """What Spark says of its batches."""

    progress: list[Mapping[str, Any]] = field(default_factory=list)

    def rows(self) -> int:
        return sum(each["numInputRows"] for each in self.progress)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100, help="in a batch")
    parser.add_argument("--batches", type=int, default=30, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=15, help="batches before those")
    parser.add_argument("--partitions", type=int, default=2, help="of the shuffle")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
        for topic in (_SOURCE, _OUTPUT, "bench-small-dead"):
            harness.topic(stack, topic)
        bootstrap = stack.kafka.bootstrap
        settings = _settings(bootstrap, Path(folder), args.partitions)
        os.environ.update(java().environment())
        conf = configuration(
            settings.spark, master=f"local[{os.cpu_count()}]", jars=spark_kafka_jars()
        )
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
            stateful_job.run(settings, spark, show=lambda _: None, stop=stop)
        except BaseException as error:
            failures.append(error)
            raise

    running = threading.Thread(target=job)
    running.start()
    try:
        with listening(spark, heard.progress.append, lambda _: None):
            arrived, closed = _feed(bootstrap, args, heard)
            _emit_batches(args, heard)
            _emit_closing(args, arrived, closed)
            _idle(args, heard)
    finally:
        stop.set()
        running.join()
    if failures:
        raise SystemExit(f"the job has failed: {failures[0]}")


def _feed(
    bootstrap: str, args: argparse.Namespace, heard: Heard
) -> tuple[Mapping[int, float], Mapping[int, Sequence[float]]]:
    """
    Send one batch after the other; wait until all sessions are closed.

    Returns when each batch was taken, and when each of its sessions was seen to be closed.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = _consumer(bootstrap)
    closed: dict[int, list[float]] = {}
    arrived: dict[int, float] = {}
    total = args.warm_up + args.batches
    for number in range(total):
        for row in range(args.rows):
            producer.produce(_SOURCE, b"{}", b"%d-%d" % (number, row))
        producer.flush()
        wanted = (number + 1) * args.rows
        _read(consumer, closed, lambda wanted=wanted: heard.rows() >= wanted)
        last = next(each for each in reversed(heard.progress) if each["numInputRows"])
        arrived[number] = datetime.fromisoformat(last["timestamp"]).timestamp()
    _read(consumer, closed, lambda: sum(map(len, closed.values())) >= total * args.rows)
    consumer.close()
    return arrived, closed


def _read(consumer: Consumer, closed: dict[int, list[float]], done: Any) -> None:  # noqa: ANN401  # a condition
    """Note what is closed until `done`."""
    deadline = time.monotonic() + _SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"the job did not get on within {_SECONDS:g} s")
        message = consumer.poll(0.02)
        if message is None or message.error() is not None:
            continue
        value = json.loads(message.value() or b"{}")
        if value["kind"] == "result":
            closed.setdefault(int(value["key"].split("-")[0]), []).append(time.time())


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
    """Say how long those batches took which had all rows of one time."""
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
    arrived: Mapping[int, float],
    closed: Mapping[int, Sequence[float]],
) -> None:
    late = [
        moment - arrived[number] - _CLOSE_SECONDS
        for number, moments in closed.items()
        if number >= args.warm_up
        for moment in moments
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


def _idle(args: argparse.Namespace, heard: Heard) -> None:
    """Say what the job costs while nothing comes and nothing is due."""
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
