"""
The pairing job: `make bench-spark_pairing`.

Pairs of users, 20,000 of them, call each other in turn, a call a millisecond; each call is an
event on each of two topics.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks.stateful import main
from benchmarks.work import KEYS, START, Work, text


def _call(number: Column) -> Column:
    return F.floor(number / 2)


def _user(number: Column) -> Column:
    return F.pmod(_call(number) * 7919, F.lit(KEYS))


WORK = Work(
    operator={
        "type": "pairing",
        "key": ["user1", "user2"],
        "event_time": "timestamp",
        "within": "5s",
        "grace": "1s",
        "max_lag": "off",
        "close_after": "1h",
        "sides": {
            "analytics": {"topic": "bench-analytics", "field": "says"},
            "metrics": {"topic": "bench-metrics", "field": "says"},
        },
    },
    topics=("bench-analytics", "bench-metrics"),
    topic=lambda number: F.when(number % 2 == 0, "bench-analytics").otherwise("bench-metrics"),
    time=_call,
    key=lambda _: F.lit(None).cast("string"),
    value=lambda number: text(
        '{"user1":"u-',
        _user(number),
        '","user2":"v","timestamp":',
        _call(number) + START,
        ',"says":"' + "x" * 50 + '"}',
    ),
)

if __name__ == "__main__":
    main("spark_pairing", WORK, __doc__)
