"""
Large state: `make bench-spark_state`.

The sessions job, from Kafka to Kafka, knows some number of keys, each with one open session. Every
further record is of one of these keys at random, closes the key's session, and begins another. So
the state keeps its size, and each record makes one result.

For each number of keys it measures batches of `--rows` records: `rows_per_s`, processor time a
row, `written_mb`, what a batch adds to the checkpoint (Spark's own files included), `state_mb`,
and `peak_mb`, the most memory that one Python worker has had. `fill_s` is how long the job took
for the first record of all keys.

The checkpoint goes below `--folder`: with 10,000,000 keys it takes more than 10 GB.
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks import folders, harness, processors
from benchmarks.stateful import job_settings, session
from benchmarks.work import Work, fill, text
from dovecote.devstack import Stack
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import STATE_STORE
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import StatefulSettings

_SECONDS = 1_500.0
_MOST_MS = 50 * 60_000
"""All records are of fewer than the hour that is the most before the broker's clock."""
_GAP_MS = 100


@dataclass
class _Seen:
    """The batches with rows, and what the processes had used after each."""

    lines: list[BatchLine] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    usages: list[Mapping[str, float]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[100_000, 1_000_000], help="keys in the state"
    )
    parser.add_argument("--rows", type=int, default=200_000, help="rows in a batch")
    parser.add_argument("--batches", type=int, default=4, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=3, help="batches before those")
    parser.add_argument(
        "--fill-rows", type=int, default=1_000_000, help="rows in a batch that adds keys"
    )
    parser.add_argument("--partitions", type=int, default=2, help="of the shuffle")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    for keys in args.keys:
        with _folder(args.folder) as folder, harness.servers() as stack:
            _measure(args, keys, folder, stack)


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="spark-state-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def _measure(args: argparse.Namespace, keys: int, folder: Path, stack: Stack) -> None:
    further = args.rows * (args.warm_up + args.batches)
    work = _work(keys, keys + further)
    settings = job_settings(args, work, folder, stack)
    filling = settings.model_copy(
        update={
            "source": settings.source.model_copy(
                update={"max_offsets_per_trigger": args.fill_rows}
            )
        }
    )
    with session(settings) as spark:
        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        fill(spark, work, settings.kafka, keys)
        began = time.monotonic()
        _run(filling, spark, keys)
        fill_s = time.monotonic() - began
        fill(spark, work, settings.kafka, keys + further, first=keys)
        found = _run(settings, spark, further)
        peak = processors.peak()
    first, lines = args.warm_up, found.lines[args.warm_up :]
    rows, seconds = sum(each.rows for each in lines), found.moments[-1] - found.moments[first - 1]
    used = processors.between(found.usages[first - 1], found.usages[-1])
    harness.emit(
        "spark_state",
        keys=keys,
        rows_per_s=round(rows / seconds),
        rows_per_batch=args.rows,
        p50_batch_s=round(median(each.seconds for each in lines), 2),
        batches=len(lines),
        written_mb=round(mean(found.written[first:]) / 1e6, 1),
        state_mb=round(max(each.state_bytes for each in lines) / 1e6, 1),
        keys_in_state=max(each.keys for each in lines),
        results=sum(each.handled for each in lines),
        fill_s=round(fill_s, 1),
        peak_mb=round(peak / 2**20),
        buckets=args.buckets,
        **{f"{kind}_cpu_us_per_row": round(each / rows * 1e6, 2) for kind, each in used.items()},
    )


def _run(settings: StatefulSettings, spark: SparkSession, total: int) -> _Seen:
    """Run the job until it has read `total` rows."""
    found, stop, count = _Seen(), threading.Event(), [0]
    written = folders.Written(Path(settings.spark.checkpoint))

    def show(line: BatchLine) -> None:
        if not line.rows:
            return
        found.lines.append(line)
        found.moments.append(time.monotonic())
        found.usages.append(processors.used())
        found.written.append(written.more())
        count[0] += line.rows
        if count[0] >= total:
            stop.set()

    timer = threading.Timer(_SECONDS, stop.set)
    timer.start()
    try:
        stateful_job.run(settings, spark, show=show, stop=stop)
    finally:
        timer.cancel()
    if count[0] != total:
        raise SystemExit(f"the job has seen {count[0]} rows of {total} in {_SECONDS:g} s")
    if dead := sum(line.dead for line in found.lines):
        raise SystemExit(f"{dead} records failed")
    return found


def _work(keys: int, total: int) -> Work:
    """Return the rows: each key once, then keys at random, at even moments of 50 minutes."""

    def key(number: Column) -> Column:
        again = F.pmod(F.xxhash64(number), F.lit(keys))
        return text("key-", F.when(number < keys, number).otherwise(again))

    return Work(
        operator={
            "type": "sessions",
            "gap": f"{_GAP_MS}ms",
            "grace": f"{_GAP_MS}ms",
            "aggregate": "list",
            "field": "id",
            "close_after": "off",
            "max_lag": "off",
        },
        topics=("bench-clicks",),
        topic=lambda _: F.lit("bench-clicks"),
        time=lambda number: (number * _MOST_MS / total).cast("long"),
        key=key,
        value=lambda number: text('{"id":', number, ',"note":"' + "x" * 80 + '"}'),
    )


if __name__ == "__main__":
    main()
