"""
Shared by the benchmarks of the stateful jobs: the whole job, from Kafka to Kafka, exactly once.

A batch costs Spark some tenths of a second whatever its size. By default, a batch holds the rows
of two seconds at 100,000 rows a second.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import harness, processors
from benchmarks.work import KEYS, Work, fill
from dovecote.devstack import Stack
from dovecote.devstack.kafka.java import java
from spark_jobs.query.configuring import configuration
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import STATE_STORE, close_session, open_session
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import JOBS, AggregationJob, StatefulSettings

SECONDS = 480.0


def main(bench: str, work: Work, doc: str | None) -> None:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rows", type=int, default=200_000, help="rows in a batch")
    parser.add_argument("--batches", type=int, default=5, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=5, help="batches before those")
    parser.add_argument("--partitions", type=int, default=os.cpu_count(), help="of the shuffle")
    parser.add_argument("--buckets", type=int, default=16)
    if work.peer is not None:
        parser.add_argument(
            "--peers",
            choices=("exactly_once_v2", "at_least_once"),
            nargs="*",
            default=["exactly_once_v2"],
            help="guarantees of Kafka Streams to measure beside it; none: not at all",
        )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
        settings, measured = run(args, work, Path(folder), stack)
        _emit(bench, args, measured, **work.told)
        if work.peer is not None:
            for guarantee in args.peers:
                _beside(bench, args, work.peer(settings, guarantee, args), measured, guarantee)


def run(
    args: argparse.Namespace, work: Work, folder: Path, stack: Stack
) -> tuple[StatefulSettings, "Measured"]:
    """Fill the topics, and run the job in a Spark of its own; return its settings and results."""
    settings = job_settings(args, work, folder, stack)
    with session(settings) as spark:
        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        return settings, _kafka(spark, args, work, settings)


@dataclass
class Measured:
    """Results of the batches that count."""

    rows: int = 0
    seconds: float = 0.0
    written: int = 0
    keys: int = 0
    state_bytes: int = 0
    cpu: Mapping[str, float] = field(default_factory=dict)
    """Processor seconds of each kind of process."""


def _kafka(
    spark: SparkSession, args: argparse.Namespace, work: Work, settings: StatefulSettings
) -> Measured:
    """Run the whole job, from Kafka to Kafka, each result once."""
    total = args.rows * (args.warm_up + args.batches)
    fill(spark, work, settings.kafka, total)
    lines: list[BatchLine] = []
    moments: list[float] = []
    usages: list[Mapping[str, float]] = []
    stop, seen = threading.Event(), [0]

    def show(line: BatchLine) -> None:
        if not line.rows:
            return
        lines.append(line)
        moments.append(time.monotonic())
        usages.append(processors.used())
        seen[0] += line.rows
        if seen[0] >= total:
            stop.set()

    timer = threading.Timer(SECONDS, stop.set)
    timer.start()
    stateful_job.run(settings, spark, show=show, stop=stop)
    timer.cancel()
    if seen[0] != total:
        raise SystemExit(f"the job has seen {seen[0]} rows of {total} in {SECONDS:g} s")
    if dead := sum(line.dead for line in lines):
        raise SystemExit(f"{dead} records failed")
    full = lines[args.warm_up :]
    return Measured(
        rows=sum(line.rows for line in full),
        seconds=moments[-1] - moments[args.warm_up - 1],
        cpu=processors.between(usages[args.warm_up - 1], usages[-1]),
        written=sum(line.handled for line in full),
        keys=full[-1].keys,
        state_bytes=full[-1].state_bytes,
    )


def _emit(bench: str, args: argparse.Namespace, found: Measured, **told: object) -> None:
    harness.emit(
        bench,
        **told,
        rows_per_s=round(found.rows / found.seconds),
        rows=found.rows,
        seconds=round(found.seconds, 3),
        rows_per_batch=args.rows,
        warm_up_batches=args.warm_up,
        written=found.written,
        active_keys=KEYS,
        keys_in_state=found.keys,
        state_mb=round(found.state_bytes / 1e6, 1),
        shuffle_partitions=args.partitions,
        buckets=args.buckets,
        **{
            f"{kind}_cpu_us_per_row": round(seconds / found.rows * 1e6, 2)
            for kind, seconds in found.cpu.items()
        },
    )


def _beside(
    bench: str,
    args: argparse.Namespace,
    peer: Mapping[str, float],
    ours: Measured,
    guarantee: str,
) -> None:
    rate = ours.rows / peer["seconds"]
    harness.emit(
        f"{bench}_peer",
        peer="kafka_streams",
        guarantee=guarantee,
        rows_per_s=round(rate),
        rows=ours.rows,
        warm_up_rows=args.rows * args.warm_up,
        cpu_us_per_row=round(peer["cpu_seconds"] / ours.rows * 1e6, 2),
        ratio=round(ours.rows / ours.seconds / rate, 2),
    )


def job_settings(
    args: argparse.Namespace, work: Work, folder: Path, stack: Stack
) -> StatefulSettings:
    name = work.operator["type"]
    for topic in (*work.topics, "bench-out", "bench-dead"):
        harness.topic(stack, topic)
    kafka = {"bootstrap.servers": stack.kafka.bootstrap}
    models: dict[str, type[StatefulSettings]] = {**JOBS, "aggregation": AggregationJob}
    return models[name].model_validate(
        {
            **({"reading": kafka} if name == "aggregation" else {}),
            "kafka": kafka,
            "source": {
                "topics": list(work.topics),
                "starting_offsets": "earliest",
                "max_offsets_per_trigger": args.rows,
            },
            "operator": dict(work.operator),
            "output": {"topic": "bench-out", "dead_letter_topic": "bench-dead"},
            "state": {"buckets": args.buckets},
            "spark": {
                "query": "bench",
                "checkpoint": str(folder / "checkpoint"),
                "shuffle_partitions": args.partitions,
                "trigger": "1ms",
            },
        }
    )


@contextmanager
def session(settings: StatefulSettings) -> Iterator[SparkSession]:
    os.environ.update(java().environment())
    master = f"local[{os.cpu_count()}]"
    spark = open_session(configuration(settings.spark, master=master))
    try:
        yield spark
    finally:
        close_session(spark)
