"""
The deduplicating Spark job: `make bench-spark_dedup`.

`memory`: the policy stage alone (shuffle, sort, policy, records to write), over rows in memory.
`kafka`: the whole job, from Kafka to Kafka, exactly once. In both the first batches warm the JVM
up and are not counted.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks import harness
from dovecote.devstack import Stack
from dovecote.devstack.kafka.jars import spark_kafka_jars
from dovecote.devstack.kafka.java import java
from spark_jobs.policy import job as dedup
from spark_jobs.policy.evaluation import evaluate, load
from spark_jobs.policy.router import Router
from spark_jobs.policy.stage import shuffled
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import close_session, configuration, open_session
from spark_jobs.query.settings import DedupSettings
from spark_jobs.rows import columns
from spark_jobs.rows.garbage import rarely_collecting

_TIME = "2026-01-01T00:00:00.000000Z"
_HEADERS = {
    "ce_time": _TIME,
    "ce_specversion": "1.0",
    "ce_type": "OrderPlaced",
    "ce_source": "/orders",
    "content-type": "application/json",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows in a batch")
    parser.add_argument("--batches", type=int, default=5, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=5, help="batches before those")
    parser.add_argument("--copies", type=int, default=2, help="records of one event id")
    parser.add_argument("--per-key", type=int, default=10, help="rows of one key in a batch")
    parser.add_argument(
        "--policy", choices=("first_match", "exact", "latest"), default="first_match"
    )
    parser.add_argument("--filter", default="value.amount >= 0", help="as in [operator]")
    parser.add_argument("--partitions", type=int, default=os.cpu_count(), help="of the shuffle")
    parser.add_argument(
        "--io", choices=("memory", "kafka"), nargs="+", default=["memory", "kafka"]
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(args, Path(folder), "127.0.0.1:1", "none")
        with _spark(settings) as spark:
            if "memory" in args.io:
                _memory(spark, args, settings)
            if "kafka" in args.io:
                with harness.servers() as stack:
                    _kafka(spark, args, stack, Path(folder))


def _memory(spark: SparkSession, args: argparse.Namespace, settings: DedupSettings) -> None:
    rows = _rows(spark, args).persist()
    rows.count()
    operator, router = settings.operator, _router(settings)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            found = columns.read(batches)
            if found is None:
                return
            outgoing, counts = evaluate(found, load(operator), router)
        if counts.retried or counts.dead:
            raise SystemExit("records failed")
        yield pa.RecordBatch.from_pydict({"rows": [counts.rows], "sent": [len(outgoing)]})

    def run() -> tuple[float, int]:
        began = time.monotonic()
        stage = shuffled(rows, args.partitions).mapInArrow(task, "rows long, sent long")
        found = stage.collect()
        seconds = time.monotonic() - began
        if sum(row["rows"] for row in found) != args.rows:
            raise SystemExit("the stage has not seen every row")
        return seconds, sum(row["sent"] for row in found)

    for _ in range(args.warm_up):
        run()
    measured = [run() for _ in range(args.batches)]
    rows.unpersist()
    seconds = sum(each for each, _ in measured)
    _emit(args, "memory", rows=args.rows * args.batches, seconds=seconds, written=measured[0][1])


def _kafka(spark: SparkSession, args: argparse.Namespace, stack: Stack, folder: Path) -> None:
    source = harness.topic(stack)
    settings = _settings(args, folder, stack.kafka.bootstrap, source)
    for topic in settings.topics_written():
        harness.topic(stack, topic)
    total = args.rows * (args.warm_up + args.batches)
    _fill(stack.kafka.bootstrap, source, args, total)
    lines: list[BatchLine] = []
    dedup.run(settings, spark, show=lines.append, stop=threading.Event())
    if sum(line.rows for line in lines) != total:
        raise SystemExit("the job has not seen every row")
    if failed := sum(line.retried + line.dead for line in lines):
        raise SystemExit(f"{failed} records failed")
    counted = lines[args.warm_up :]
    _emit(
        args,
        "kafka",
        rows=sum(line.rows for line in counted),
        seconds=sum(line.seconds for line in counted),
        written=sum(line.handled for line in counted) // len(counted),
    )


def _emit(args: argparse.Namespace, io: str, *, rows: int, seconds: float, written: int) -> None:
    harness.emit(
        "spark_dedup",
        io=io,
        rows_per_s=round(rows / seconds),
        rows=rows,
        seconds=round(seconds, 3),
        rows_per_batch=args.rows,
        warm_up_batches=args.warm_up,
        written_per_batch=written,
        keys_per_batch=args.rows // args.per_key,
        duplicates_share=round(1 - 1 / args.copies, 3),
        policy=args.policy,
        filter=args.filter,
        value_bytes=len(_value(0)),
        shuffle_partitions=args.partitions,
    )


def _value(number: int) -> bytes:
    """Return a value of about 200 bytes."""
    return b'{"order":"%012d","amount":%d,"note":"%s"}' % (number, number % 997, b"x" * 150)


def _rows(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Return one batch of rows in the form of Spark's Kafka source."""
    number = F.col("id")
    event = (number / args.copies).cast("long")
    headers = [("ce_id", F.format_string("%032d", event))]
    headers += [(name, F.lit(text)) for name, text in _HEADERS.items()]
    value = F.format_string(
        '{"order":"%012d","amount":%d,"note":"' + "x" * 150 + '"}', event, event % 997
    )
    return spark.range(args.rows, numPartitions=harness.PARTITIONS).select(
        F.lit("orders").alias("topic"),
        F.spark_partition_id().alias("partition"),
        number.alias("offset"),
        F.timestamp_millis(F.lit(1_767_225_600_000)).alias("timestamp"),
        F.format_string("key-%d", _shuffled_key(event, args)).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.array(
            *(F.struct(F.lit(n).alias("key"), v.cast("binary").alias("value")) for n, v in headers)
        ).alias("headers"),
    )


def _shuffled_key(event: Column, args: argparse.Namespace) -> Column:
    """Return the key of an event; neighbours do not have neighbouring keys."""
    return F.pmod(event * 7919, F.lit(args.rows // args.per_key))


def _fill(bootstrap: str, topic: str, args: argparse.Namespace, total: int) -> None:
    """Put the same records on a topic, before the clock starts."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    rest: list[tuple[str, str | bytes | None]] = list(_HEADERS.items())
    keys = args.rows // args.per_key
    for number in range(total):
        event = number // args.copies
        headers = [("ce_id", b"%032d" % event), *rest]
        producer.produce(topic, _value(event), b"key-%d" % (event * 7919 % keys), headers=headers)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the broker did not take the input")


def _settings(
    args: argparse.Namespace, folder: Path, bootstrap: str, source: str
) -> DedupSettings:
    operator = {"type": args.policy, "filter": args.filter}
    return DedupSettings.model_validate(
        {
            "kafka": {"bootstrap.servers": bootstrap},
            "source": {"topics": [source], "max_offsets_per_trigger": args.rows},
            "operator": operator,
            "output": {
                "topic": f"{source}-out",
                "retry_topic": f"{source}-retry",
                "dead_letter_topic": f"{source}-dead",
            },
            "spark": {
                "query": source,
                "checkpoint": str(folder / source),
                "shuffle_partitions": args.partitions,
                "trigger": "available_now",
            },
        }
    )


def _router(settings: DedupSettings) -> Router:
    now = time.time_ns() // 1_000_000
    return Router(topics=settings.topics(), backoff=settings.backoff(), now=now)


@contextmanager
def _spark(settings: DedupSettings) -> Iterator[SparkSession]:
    os.environ.update(java().environment())
    master = f"local[{os.cpu_count()}]"
    spark = open_session(configuration(settings.spark, master=master, jars=spark_kafka_jars()))
    try:
        yield spark
    finally:
        close_session(spark)


if __name__ == "__main__":
    main()
