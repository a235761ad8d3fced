"""Measure what a row costs the deduplicating Spark job, over its executors of one core each."""

import tempfile
from pathlib import Path

from benchmarks import spark_dedup
from benchmarks.scale.points import Curve, Point
from dovecote.devstack import Stack

_MEGABYTES = 1_024


def executors(stack: Stack, most: int) -> Curve:
    """Return the cost over the executors, each a process with one core and a JVM of its own."""
    points = [_point(stack, size) for size in (1, 2, 4) if size <= most]
    return Curve("spark-executors", "executors", "processor time of the job", tuple(points))


def _point(stack: Stack, size: int) -> Point:
    args = spark_dedup.arguments(
        warm_up=3, batches=4, partitions=size, master=f"local-cluster[{size},1,{_MEGABYTES}]"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = spark_dedup.run(args, stack, Path(folder), "partitions")
    cost = sum(found.cpu.values()) / found.rows * 1e6
    return Point(size, round(cost, 2), per_s=round(found.rows / found.seconds))
