"""
The sessions job: `make bench-spark_sessions`.

There are 20,000 keys in random order, and an event a millisecond. Sessions have a gap of 10 s and
a grace of 5 s, and list their events' values. After the job, Kafka Streams works on the same topic
and servers.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks import harness
from benchmarks.stateful import main
from benchmarks.work import KEYS, Work, text
from dovecote.devstack.kafka.jars import JarSet, fetch
from dovecote.devstack.kafka.java import java
from spark_jobs.stateful.settings import StatefulSettings

_VERSION = "4.1.0"

JARS = JarSet(
    f"kafka-streams-{_VERSION}",
    f"""\
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{_VERSION}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-nop" rev="1.7.36" conf="default"/>
""",
    Path(__file__).with_name("checksums") / f"kafka-streams-{_VERSION}.sha256",
)

_PROGRAM = Path(__file__).with_name("StreamsSessions.java")
_SECONDS = 400


def _streams(
    settings: StatefulSettings, guarantee: str, args: argparse.Namespace
) -> Mapping[str, float]:
    """Run Kafka Streams on the records of the topic."""
    bootstrap, topic = settings.kafka["bootstrap.servers"], settings.source.topics[0]
    warm_up, records = args.rows * args.warm_up, args.rows * args.batches
    output = harness.topic_at(bootstrap, f"streams-{uuid4().hex[:12]}-out")
    return streams((bootstrap, topic, output), guarantee, warm_up=warm_up, records=records)


def streams(
    places: tuple[str, str, str], guarantee: str, *, warm_up: int, records: int
) -> Mapping[str, float]:
    """
    Run Kafka Streams, with its default store and caches, on a broker, from a topic to another.

    It needs a JDK, because its program is compiled at the start. Returns seconds in total, seconds
    for closing, and processor seconds, of the records after the warm-up.
    """
    found = java()
    bootstrap, topic, output = places
    name = f"streams-{uuid4().hex[:12]}"
    command = [str(found.executable), *found.options, "-Xmx2g", "-cp", f"{fetch(JARS)}/*"]
    with tempfile.TemporaryDirectory() as folder:
        program = (str(_PROGRAM), bootstrap, name, topic, output)
        work = (str(warm_up), str(records), guarantee, "2", folder)
        done = subprocess.run(
            [*command, *program, *work],
            stdout=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    if done.returncode:
        raise SystemExit(
            "Kafka Streams has failed, see above; it needs a JDK. `--peers` leaves it out"
        )
    told: Mapping[str, float] = json.loads(done.stdout)
    return told


WORK = Work(
    operator={
        "type": "sessions",
        "gap": "10s",
        "grace": "5s",
        "aggregate": "list",
        "field": "id",
        "close_after": "off",  # Kafka Streams has no such clock
        "max_lag": "off",
    },
    topics=("bench-clicks",),
    topic=lambda _: F.lit("bench-clicks"),
    time=lambda number: number,
    key=lambda number: text("key-", F.pmod(F.xxhash64(number), F.lit(KEYS))),
    value=lambda number: text('{"id":', number, ',"note":"' + "x" * 80 + '"}'),
    peer=_streams,
)

if __name__ == "__main__":
    main("spark_sessions", WORK, __doc__)
