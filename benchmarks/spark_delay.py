"""
The delay job: `make bench-spark_delay`.

There are 20,000 keys. Every other record has to wait until about two seconds after the benchmark
begins, so that in the end as many records go out as come in.
"""

import time

from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks.stateful import main
from benchmarks.work import KEYS, Work, text
from outbox.envelope import NOT_BEFORE

BEGAN = time.time_ns() // 1_000_000

WORK = Work(
    operator={"type": "delay"},
    topics=("bench-retry",),
    topic=lambda _: F.lit("bench-retry"),
    time=lambda number: number,
    key=lambda number: text("key-", number % KEYS),
    value=lambda number: text('{"id":', number, ',"note":"' + "x" * 80 + '"}'),
    header=lambda number: (
        NOT_BEFORE,
        text(F.when(number % 2 == 0, 0).otherwise(BEGAN + 2_000 + number % 1000)),
    ),
)

if __name__ == "__main__":
    main("spark_delay", WORK, __doc__)
