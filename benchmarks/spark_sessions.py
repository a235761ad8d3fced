"""
The sessions job: `make bench-spark_sessions`.

There are 20,000 keys in random order, and an event a millisecond. Sessions have a gap of 10 s and
a grace of 5 s, and list their events' values. `memory`: the operator in Spark. `kafka`: the whole
job, and after it Kafka Streams on the same topic and servers.
"""

import argparse
from collections.abc import Mapping

from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks import streams
from benchmarks.stateful import main
from benchmarks.work import KEYS, Work, text
from spark_jobs.stateful.settings import StatefulSettings


def _streams(
    settings: StatefulSettings, guarantee: str, args: argparse.Namespace
) -> Mapping[str, float]:
    return streams.sessions(
        settings.kafka["bootstrap.servers"],
        settings.source.topics[0],
        guarantee,
        warm_up=args.rows * args.warm_up,
        records=args.rows * args.batches,
    )


WORK = Work(
    operator={
        "type": "sessions",
        "gap": "10s",
        "grace": "5s",
        "aggregate": "list",
        "field": "id",
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
