"""
The sessions job: `make bench-spark_sessions`.

20,000 keys in random order, an event a millisecond, sessions with a gap of 10 s and a grace of
5 s, a list of what their events say. `memory`: the operator in Spark; `kafka`: the whole job.
"""

from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks.stateful import KEYS, Work, main

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
    key=lambda number: F.format_string("key-%d", F.pmod(F.xxhash64(number), F.lit(KEYS))),
    value=lambda number: F.format_string('{"id":%d,"note":"' + "x" * 80 + '"}', number),
)

if __name__ == "__main__":
    main("spark_sessions", WORK, __doc__)
