"""
Shared by the benchmarks of the stateful jobs: rows in memory or on Kafka, clock, processors.

`memory` is the operator in Spark, `kafka` the whole job, exactly once. A batch costs Spark some
tenths of a second whatever its size. Batches of `memory` hold the rows of four seconds at 100,000
rows a second, those of `kafka` half as many.
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

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import harness, processors
from benchmarks.work import KEYS, Work, fill, rows
from dovecote.devstack import Stack
from dovecote.devstack.kafka.java import java
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import STATE_STORE, close_session, configuration, open_session
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.host import outcomes
from spark_jobs.stateful.outcome import Outcome
from spark_jobs.stateful.settings import JOBS, AggregationJob, StatefulSettings

SECONDS = 480.0
_SIZES = {"memory": (400_000, 10), "kafka": (200_000, 5)}
"""Rows in a batch, and the number of uncounted batches, during which Java compiles."""


def main(bench: str, work: Work, doc: str | None) -> None:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rows", type=int, help="rows in a batch (400,000; kafka: 200,000)")
    parser.add_argument("--batches", type=int, default=5, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, help="batches before those (10; kafka: 5)")
    parser.add_argument("--partitions", type=int, default=os.cpu_count(), help="of the shuffle")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument(
        "--io", choices=("memory", "kafka"), nargs="+", default=["memory", "kafka"]
    )
    if work.peer is not None:
        parser.add_argument(
            "--peers",
            choices=("exactly_once_v2", "at_least_once"),
            nargs="*",
            default=["exactly_once_v2"],
            help="guarantees of Kafka Streams to measure beside `kafka`; none: not at all",
        )
    args = parser.parse_args()
    memory, kafka = _sized(args, "memory"), _sized(args, "kafka")
    with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
        settings = _settings(kafka, work, Path(folder), stack)
        with _spark(settings) as spark:
            for name, value in STATE_STORE.items():
                spark.conf.set(name, value)
            if "memory" in args.io:
                measured = _memory(spark, memory, work, settings)
                _emit(bench, memory, "memory", measured, **work.told)
            if "kafka" in args.io:
                measured = _kafka(spark, kafka, work, settings)
                _emit(bench, kafka, "kafka", measured, **work.told)
        if "kafka" in args.io and work.peer is not None:
            for guarantee in args.peers:
                _beside(bench, kafka, work.peer(settings, guarantee, kafka), measured, guarantee)


def _sized(args: argparse.Namespace, io: str) -> argparse.Namespace:
    """Return `args` with the defaults for `io` filled in."""
    rows, warm_up = _SIZES[io]
    said = {"rows": args.rows or rows}
    said["warm_up"] = warm_up if args.warm_up is None else args.warm_up
    return argparse.Namespace(**{**vars(args), **said})


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


def _memory(
    spark: SparkSession, args: argparse.Namespace, work: Work, settings: StatefulSettings
) -> Measured:
    """Step the operator over rows that Spark makes; its results are counted, not written."""
    source = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=args.rows, numPartitions=harness.PARTITIONS)
        .options(startTimestamp=0, advanceMillisPerBatch=1000)
        .load()
    )
    told = outcomes(rows(source, work), stateful_job.stateful_config(settings))
    found = Measured()
    done = threading.Event()
    began = 0.0
    used: Mapping[str, float] = {}

    def batch(frame: DataFrame, number: int) -> None:
        nonlocal began, used
        mine = frame.mapInArrow(_counted, "rows long, sent long, keys long, bytes long").collect()
        now = time.monotonic()
        if number >= args.warm_up and not done.is_set():
            found.rows += sum(each["rows"] for each in mine)
            found.seconds += now - began
            found.written += sum(each["sent"] for each in mine)
            found.keys = sum(each["keys"] for each in mine)
            found.state_bytes = sum(each["bytes"] for each in mine)
        began = now
        if number == args.warm_up - 1:
            used = processors.used()
        if number == args.warm_up + args.batches - 1:
            found.cpu = processors.since(used)
            done.set()

    query = (
        told.writeStream.foreachBatch(batch)
        .option("checkpointLocation", f"{settings.spark.checkpoint}-memory")
        .trigger(processingTime="0 seconds")
        .start()
    )
    if not done.wait(SECONDS):
        raise SystemExit(f"not within {SECONDS:g} s: {query.lastProgress}")
    query.stop()
    return found


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode the results at the point where they would be written."""
    for batch in batches:
        with rarely_collecting():
            mine = [Outcome.decode(each) for each in batch.column("outcome").to_pylist()]
        yield pa.RecordBatch.from_pydict(
            {
                "rows": [each.rows for each in mine],
                "sent": [len(each.outgoing) for each in mine],
                "keys": [each.keys for each in mine],
                "bytes": [each.size for each in mine],
            }
        )


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


def _emit(bench: str, args: argparse.Namespace, io: str, found: Measured, **told: object) -> None:
    harness.emit(
        bench,
        io=io,
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


def _settings(
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
def _spark(settings: StatefulSettings) -> Iterator[SparkSession]:
    os.environ.update(java().environment())
    master = f"local[{os.cpu_count()}]"
    spark = open_session(configuration(settings.spark, master=master))
    try:
        yield spark
    finally:
        close_session(spark)
