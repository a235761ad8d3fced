"""
Small batches into large windows: `make bench-spark_windows`.

The aggregation job, from Kafka to Kafka, has one key with one open window. When the window has
some number of events, further ones come one at a time, a batch for each. A script then sums the
window: `aggregate` reads all its events when it closes, and `fold` takes each when it comes.

For each script and each number of events, it measures a batch of one event:

- `p50_ms`, and `cpu_ms`, its processor time in Java and its Python workers;
- `written_bytes`, which it adds to the checkpoint.

Then the window closes: `closing_s` is the duration of that batch, and `peak_mb` the most memory
that one Python process has had.
"""

import argparse
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks import folders, harness, processors
from dovecote.devstack.kafka.java import java
from spark_jobs.query.configuring import configuration
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import STATE_STORE, close_session, open_session
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import AggregationJob

SCRIPTS = {
    "aggregate": """
def aggregate(IN, Env):
    total = 0
    for event in IN:
        total += event["sum"]
    return struct(OUT={"user": Env.AggregationKey, "sum": total})
""",
    "fold": """
def fold(acc, IN, Env):
    return {"user": Env.AggregationKey, "sum": IN["sum"] + (acc["sum"] if acc else 0)}
""",
}
_SECONDS = 1_200.0
_DAY = 86_400_000


@dataclass
class _Heard:
    """The batches with rows, as the job shows them."""

    lines: list[BatchLine] = field(default_factory=list)
    come: threading.Condition = field(default_factory=threading.Condition)

    def show(self, line: BatchLine) -> None:
        with self.come:
            if line.rows:
                self.lines.append(line)
            self.come.notify_all()

    def wait(self, rows: int) -> BatchLine:
        """Wait until this many rows have been read; return the last batch."""
        with self.come:
            done = self.come.wait_for(
                lambda: sum(each.rows for each in self.lines) >= rows, _SECONDS
            )
        if not done:
            raise SystemExit(f"the job has not read {rows} rows in {_SECONDS:g} s")
        return self.lines[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--scripts", choices=list(SCRIPTS), nargs="+", default=list(SCRIPTS))
    parser.add_argument("--batches", type=int, default=30, help="batches that are counted")
    parser.add_argument("--warm-up", type=int, default=20, help="batches before those")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
        bootstrap = stack.kafka.bootstrap
        for topic in ("bench-out", "bench-dead"):
            harness.topic(stack, topic)
        os.environ.update(java().environment())
        first = _settings(bootstrap, Path(folder) / "first", "none", "fold", 1)
        conf = configuration(first.spark, master=f"local[{os.cpu_count()}]")
        spark = open_session(conf)
        try:
            for name, value in STATE_STORE.items():
                spark.conf.set(name, value)
            for script in args.scripts:
                for events in args.events:
                    topic = harness.topic_at(bootstrap, partitions=1)
                    total = events + args.warm_up + args.batches + 1
                    place = Path(folder) / topic
                    settings = _settings(bootstrap, place, topic, script, total)
                    _measure(spark, settings, args, script, events)
        finally:
            close_session(spark)


def _measure(
    spark: SparkSession,
    settings: AggregationJob,
    args: argparse.Namespace,
    script: str,
    events: int,
) -> None:
    heard, stop = _Heard(), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            stateful_job.run(settings, spark, show=heard.show, stop=stop)
        except BaseException as error:
            failed.append(error)
            raise

    producer = Producer({"bootstrap.servers": settings.kafka["bootstrap.servers"]})
    _produce(producer, settings.source.topics[0], events)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        heard.wait(events)
        _small(producer, settings, heard, args.warm_up)
        usage, before = processors.used(), folders.Written(Path(settings.spark.checkpoint))
        lines, written = [], []
        for _ in range(args.batches):
            lines += _small(producer, settings, heard, 1)
            written.append(before.more())
        used = processors.since(usage)
        (closing,) = _small(producer, settings, heard, 1)
        peak = processors.peak()
    finally:
        stop.set()
        thread.join()
    if failed or any(each.dead for each in heard.lines) or closing.handled != 1:
        raise SystemExit(f"the window has not closed with one result: {closing}")
    took = sorted(each.seconds for each in lines)
    harness.emit(
        "spark_windows",
        script=script,
        events=events,
        batches=len(lines),
        p50_ms=round(median(took) * 1e3),
        max_ms=round(took[-1] * 1e3),
        cpu_ms=round((used["jvm"] + used["workers"]) / len(lines) * 1e3),
        written_bytes=round(sum(written) / len(written)),
        written_most_bytes=max(written),
        state_bytes=lines[-1].state_bytes,
        closing_s=round(closing.seconds, 3),
        peak_mb=round(peak / 2**20),
    )


def _small(
    producer: Producer, settings: AggregationJob, heard: _Heard, batches: int
) -> list[BatchLine]:
    """Let batches of one event come, each after the one before."""
    found = []
    for _ in range(batches):
        rows = sum(each.rows for each in heard.lines)
        _produce(producer, settings.source.topics[0], 1)
        found.append(heard.wait(rows + 1))
    return found


def _produce(producer: Producer, topic: str, count: int) -> None:
    now = time.time_ns() // 1_000_000
    for number in range(count):
        value = f'{{"id":{number},"user":"key","sum":{number % 7},"note":"{"x" * 60}"}}'
        while True:
            try:
                producer.produce(topic, value, "key", timestamp=now)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the broker did not take the input")


def _settings(
    bootstrap: str, checkpoint: Path, topic: str, script: str, count: int
) -> AggregationJob:
    def place(name: str) -> dict[str, object]:
        config = {"type": "kafka", "name": "bench"}
        return {"name": name, "type": "destination", "topic": name, "config": config}

    kafka = {"bootstrap.servers": bootstrap}
    step = {
        "name": "bench",
        "type": "aggregation",
        "trigger": {"type": "count", "count": count, "timeout": _DAY},
        "dsl": {"path": "script.star"},
        "destination": place("bench-out"),
        "error": place("bench-dead"),
        "maxLag": None,
    }
    return AggregationJob.model_validate(
        {
            "kafka": kafka,
            "reading": kafka,
            "source": {
                "topics": [topic],
                "starting_offsets": "earliest",
                "max_offsets_per_trigger": 100_000,
            },
            "operator": {
                "type": "aggregation",
                "step": step,
                "aggregate": {"path": "script.star", "text": SCRIPTS[script]},
            },
            "output": {"topic": "bench-out", "dead_letter_topic": "bench-dead"},
            "spark": {
                "query": topic,
                "checkpoint": str(checkpoint),
                "shuffle_partitions": 1,
                "trigger": "1ms",
            },
        }
    )


if __name__ == "__main__":
    main()
