"""Measure what a row costs the deduplicating Spark job, over its executors of one core each."""

import json
import subprocess
import sys

from benchmarks.scale.points import Curve, Point
from dovecote.devstack import Stack

_MEGABYTES = 1_024
_LONGEST_SECONDS = 900.0
_WORK = ("--rows", "200000", "--warm-up", "3", "--batches", "4", "--grouping", "partitions")


def executors(_: Stack, most: int) -> Curve:
    """Return the cost over the executors, each a process with one core and a JVM of its own."""
    points = [_point(size) for size in (1, 2, 4) if size <= most]
    return Curve("spark-executors", "executors", "processor time of the job", tuple(points))


def _point(size: int) -> Point:
    """Run the job's benchmark, which has servers of its own."""
    master = f"local-cluster[{size},1,{_MEGABYTES}]"
    command = [sys.executable, "-m", "benchmarks.spark_dedup", *_WORK]
    partitions = ("--partitions", str(size), "--master", master)
    done = subprocess.run(
        [*command, *partitions], stdout=subprocess.PIPE, timeout=_LONGEST_SECONDS, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    cost = sum(found[f"{each}_us_per_row"] for each in ("driver", "jvm", "workers"))
    return Point(size, round(cost, 2), per_s=found["rows_per_s"])
