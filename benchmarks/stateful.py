"""What the benchmarks of the stateful jobs share: rows in memory or on Kafka, and the clock."""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks import harness
from devstack import Stack
from devstack.jars import spark_kafka_jars
from devstack.java import java
from spark_jobs import stateful_job
from spark_jobs.outcome import Outcome
from spark_jobs.progress import BatchLine
from spark_jobs.session import STATE_STORE, close_session, configuration, open_session
from spark_jobs.stateful import outcomes
from spark_jobs.stateful_settings import JOBS, AggregationJob, StatefulSettings

KEYS = 20_000
# Not long ago: the broker deletes records by their timestamps.
START = time.time_ns() // 1_000_000 - 3_600_000
SECONDS = 240.0


@dataclass(frozen=True)
class Work:
    """The rows of a benchmark, by their numbers, and the operator that gets them."""

    operator: Mapping[str, Any]
    topics: tuple[str, ...]
    topic: Callable[[Column], Column]
    time: Callable[[Column], Column]
    """Event time in milliseconds since the first row."""
    key: Callable[[Column], Column]
    value: Callable[[Column], Column]
    header: Callable[[Column], tuple[str, Column]] | None = None
    told: Mapping[str, object] = field(default_factory=dict)
    """Further fields of what is printed."""


def main(bench: str, work: Work, doc: str | None) -> None:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rows", type=int, default=100_000, help="rows in a batch")
    parser.add_argument("--batches", type=int, default=4, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=4, help="batches before those")
    parser.add_argument("--partitions", type=int, default=os.cpu_count(), help="of the shuffle")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument(
        "--io", choices=("memory", "kafka"), nargs="+", default=["memory", "kafka"]
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
        settings = _settings(args, work, Path(folder), stack)
        with _spark(settings) as spark:
            for name, value in STATE_STORE.items():
                spark.conf.set(name, value)
            if "memory" in args.io:
                measured = _memory(spark, args, work, settings)
                _emit(bench, args, "memory", measured, **work.told)
            if "kafka" in args.io:
                measured = _kafka(spark, args, work, settings)
                _emit(bench, args, "kafka", measured, **work.told)


@dataclass
class Measured:
    """What the batches that count came to."""

    rows: int = 0
    seconds: float = 0.0
    written: int = 0
    keys: int = 0
    state_bytes: int = 0


def _memory(
    spark: SparkSession, args: argparse.Namespace, work: Work, settings: StatefulSettings
) -> Measured:
    """Step the operator over rows that Spark makes; what it says is counted, not written."""
    source = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=args.rows, numPartitions=harness.PARTITIONS)
        .options(startTimestamp=0, advanceMillisPerBatch=1000)
        .load()
    )
    told = outcomes(_rows(source, work), stateful_job.stateful_config(settings))
    found = Measured()
    done = threading.Event()
    began = 0.0

    def batch(frame: DataFrame, number: int) -> None:
        nonlocal began
        mine = frame.mapInArrow(_counted, "rows long, sent long, keys long, bytes long").collect()
        now = time.monotonic()
        if number >= args.warm_up and not done.is_set():
            found.rows += sum(each["rows"] for each in mine)
            found.seconds += now - began
            found.written += sum(each["sent"] for each in mine)
            found.keys = sum(each["keys"] for each in mine)
            found.state_bytes = sum(each["bytes"] for each in mine)
        began = now
        if number >= args.warm_up + args.batches - 1:
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
    """Decode what would be written, where it would be written."""
    for batch in batches:
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
    """Run the whole job, Kafka to Kafka, each result once."""
    total = args.rows * (args.warm_up + args.batches)
    _fill(spark, work, settings, total)
    lines: list[BatchLine] = []
    stop, seen = threading.Event(), [0]

    def show(line: BatchLine) -> None:
        lines.append(line)
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
    full = [line for line in lines if line.rows][args.warm_up :]
    return Measured(
        rows=sum(line.rows for line in full),
        seconds=sum(line.seconds for line in full),
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
    )


def _rows(source: DataFrame, work: Work) -> DataFrame:
    """Return rows as Spark's Kafka source gives them."""
    number = F.col("value")
    kind = "array<struct<key:string,value:binary>>"
    headers = F.array().cast(kind)
    if work.header is not None:
        name, text = work.header(number)
        headers = F.array(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")))
    return source.select(
        work.topic(number).alias("topic"),
        F.pmod(number, F.lit(harness.PARTITIONS)).cast("int").alias("partition"),
        number.alias("offset"),
        F.timestamp_millis(work.time(number) + START).alias("timestamp"),
        work.key(number).cast("binary").alias("key"),
        work.value(number).cast("binary").alias("value"),
        headers.cast(kind).alias("headers"),
    )


def _fill(spark: SparkSession, work: Work, settings: StatefulSettings, total: int) -> None:
    """Put the same rows on the topics, before the clock starts."""
    numbers = spark.range(total, numPartitions=max(1, total // 10_000)).withColumnRenamed(
        "id", "value"
    )
    producer = Producer(
        {
            "bootstrap.servers": settings.kafka["bootstrap.servers"],
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    frame = _rows(numbers, work).select(
        "topic", F.unix_millis("timestamp"), "key", "value", "headers"
    )
    for topic, time_, key, value, headers in frame.toLocalIterator():
        producer.produce(
            topic,
            bytes(value),
            None if key is None else bytes(key),
            timestamp=time_,
            headers=[(name, bytes(text)) for name, text in headers],
        )
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the broker did not take the input")


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
    spark = open_session(configuration(settings.spark, master=master, jars=spark_kafka_jars()))
    try:
        yield spark
    finally:
        close_session(spark)
