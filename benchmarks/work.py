"""The rows that the benchmarks of the stateful jobs use, made by Spark or put on Kafka."""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks import harness
from spark_jobs.stateful.settings import StatefulSettings

KEYS = 20_000
# A recent time: the broker deletes records by their timestamps.
_FILLED_AT_ONCE = 100_000
START = time.time_ns() // 1_000_000 - 3_600_000

Peer: TypeAlias = Callable[[StatefulSettings, str, argparse.Namespace], Mapping[str, float]]
"""Does the same work on the same topics; returns `seconds`, and processor seconds."""


@dataclass(frozen=True)
class Work:
    """The rows of a benchmark, by their numbers, and the operator that processes them."""

    operator: Mapping[str, Any]
    topics: tuple[str, ...]
    topic: Callable[[Column], Column]
    time: Callable[[Column], Column]
    """Event time in milliseconds since the first row."""
    key: Callable[[Column], Column]
    value: Callable[[Column], Column]
    header: Callable[[Column], tuple[str, Column]] | None = None
    peer: Peer | None = None
    told: Mapping[str, object] = field(default_factory=dict)
    """More fields of the printed result."""


def rows(source: DataFrame, work: Work) -> DataFrame:
    """Return rows in the form of Spark's Kafka source."""
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


def text(*parts: Column | str) -> Column:
    """Return the parts as one text; Spark's formatting takes several times as long."""
    return F.concat(
        *(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts)
    )


def fill(
    spark: SparkSession, work: Work, kafka: Mapping[str, str], total: int, *, first: int = 0
) -> None:
    """Put the same rows on the topics, from number `first` on, before the clock starts."""
    producer = Producer(
        {
            "bootstrap.servers": kafka["bootstrap.servers"],
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    for begin in range(first, total, _FILLED_AT_ONCE):
        last = min(total, begin + _FILLED_AT_ONCE)
        numbers = spark.range(begin, last).withColumnRenamed("id", "value")
        found = rows(numbers, work).select(
            "topic", "offset", F.unix_millis("timestamp").alias("time"), "key", "value", "headers"
        )
        columns = [column.to_pylist() for column in found.toArrow().columns]
        for topic, number, time_, key, value, headers in zip(*columns, strict=True):
            pairs = [(each["key"], each["value"]) for each in headers]
            # Without a key, spread rows in turn: if thousands of neighbours were on one partition,
            # they would be far from those on the others, and come too late.
            turn = number // len(work.topics) % harness.PARTITIONS
            place = {"partition": turn} if key is None else {}
            producer.produce(topic, value, key, timestamp=time_, headers=pairs, **place)
            producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the broker did not take the input")
