"""
The deduplicating Spark job, from Kafka to Kafka, exactly once: `make bench-spark_dedup`.

Each way in which the records of a key can meet is measured in the same Spark. The first batches
warm it up and are not counted.
"""

import argparse
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks import harness, processors
from dovecote.devstack import Stack
from dovecote.devstack.kafka.java import java
from spark_jobs.policy import job as dedup
from spark_jobs.query.configuring import configuration
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import close_session, open_session
from spark_jobs.query.settings import DedupSettings

_TIME = "2026-01-01T00:00:00.000000Z"
_WAYS = ("partitions", "shuffle")
_HEADERS = {
    "ce_time": _TIME,
    "ce_specversion": "1.0",
    "ce_type": "OrderPlaced",
    "ce_source": "/orders",
    "content-type": "application/json",
}


def main() -> None:
    args = _parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(args, Path(folder), "127.0.0.1:1", "none", "auto")
        with _spark(settings, args.master) as spark, harness.servers() as stack:
            for grouping in args.grouping:
                _kafka(spark, args, stack, Path(folder), grouping)


def arguments(**given: object) -> argparse.Namespace:
    """Return the arguments that the command has by default, except those that are given."""
    return _parser().parse_args([], argparse.Namespace(**given))


def _parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
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
        "--grouping", choices=_WAYS, nargs="+", default=_WAYS, help="as in [spark]"
    )
    parser.add_argument("--master", default=f"local[{os.cpu_count()}]", help="as Spark's")
    return parser


def _kafka(
    spark: SparkSession, args: argparse.Namespace, stack: Stack, folder: Path, grouping: str
) -> None:
    found = measured(spark, args, stack, folder, grouping)
    _emit(
        args,
        grouping,
        {
            f"{kind}_us_per_row": round(each / found.rows * 1e6, 2)
            for kind, each in found.cpu.items()
        },
        rows=found.rows,
        seconds=found.seconds,
        written=found.written // args.batches,
    )


class Deduplicated(NamedTuple):
    """Results of the batches that count."""

    source: str
    """The topic that was filled; the results are on the one of the same name with `-out`."""

    rows: int
    seconds: float
    written: int
    cpu: Mapping[str, float]
    """Processor seconds of each kind of process."""


def run(args: argparse.Namespace, stack: Stack, folder: Path, grouping: str) -> Deduplicated:
    """Fill a topic, and run the job in a Spark of its own."""
    settings = _settings(args, folder, stack.kafka.bootstrap, "none", grouping)
    with _spark(settings, args.master) as spark:
        return measured(spark, args, stack, folder, grouping)


def measured(
    spark: SparkSession, args: argparse.Namespace, stack: Stack, folder: Path, grouping: str
) -> Deduplicated:
    """Fill a topic, and run the job on it."""
    source = harness.topic(stack)
    settings = _settings(args, folder, stack.kafka.bootstrap, source, grouping)
    for topic in settings.topics_written():
        harness.topic(stack, topic)
    total = args.rows * (args.warm_up + args.batches)
    _fill(stack.kafka.bootstrap, source, args, total)
    lines: list[BatchLine] = []
    used = [processors.used()]

    def show(line: BatchLine) -> None:
        lines.append(line)
        used.append(processors.used())

    dedup.run(settings, spark, show=show, stop=threading.Event())
    if sum(line.rows for line in lines) != total:
        raise SystemExit("the job has not seen every row")
    if failed := sum(line.retried + line.dead for line in lines):
        raise SystemExit(f"{failed} records failed")
    counted = lines[args.warm_up :]
    return Deduplicated(
        source,
        rows=sum(line.rows for line in counted),
        seconds=sum(line.seconds for line in counted),
        written=sum(line.handled for line in counted),
        cpu=processors.between(used[args.warm_up], used[-1]),
    )


def _emit(
    args: argparse.Namespace,
    grouping: str,
    spent: Mapping[str, float],
    *,
    rows: int,
    seconds: float,
    written: int,
) -> None:
    harness.emit(
        "spark_dedup",
        master=args.master,
        grouping=grouping,
        rows_per_s=round(rows / seconds),
        **spent,
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
    args: argparse.Namespace, folder: Path, bootstrap: str, source: str, grouping: str
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
                "grouping": grouping,
            },
        }
    )


@contextmanager
def _spark(settings: DedupSettings, master: str) -> Iterator[SparkSession]:
    os.environ.update(java().environment())
    spark = open_session(configuration(settings.spark, master=master))
    try:
        yield spark
    finally:
        close_session(spark)


if __name__ == "__main__":
    main()
