"""
The aggregation job: `make bench-spark_aggregate`, `ARGS='--scripts all'`.

It has 20,000 keys in random order, and a window for every five events of a key. Without scripts:
the record's key, a count trigger, and unchanged events as output. `trigger`: a script counts
instead. `all`: scripts also find the key and sum the window.
"""

import argparse
import sys
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from benchmarks.stateful import main
from benchmarks.work import KEYS, Work, text

KEY = """
def key(IN, Env):
    return IN["user"]
"""
TRIGGER = """
def trigger(IN, Env):
    Env.cache["n"] = Env.cache.get("n", 0) + 1
    return "fireAndPurge" if Env.cache["n"] == 5 else "continue"
"""
AGGREGATE = """
def aggregate(IN, Env):
    total = 0
    for event in IN:
        total += event["sum"]
    return struct(OUT={"user": Env.AggregationKey, "sum": total})
"""


def _operator(scripts: str) -> dict[str, Any]:
    def place(topic: str) -> dict[str, Any]:
        config = {"type": "kafka", "name": "bench"}
        return {"name": topic, "type": "destination", "topic": topic, "config": config}

    timeout = 86_400_000
    step: dict[str, Any] = {
        "name": "bench",
        "type": "aggregation",
        "trigger": {"type": "count", "count": 5, "timeout": timeout},
        "destination": place("bench-out"),
        "error": place("bench-dead"),
        "maxLag": None,
    }
    found: dict[str, Any] = {"type": "aggregation", "step": step}
    if scripts != "none":
        step["trigger"] = {"type": "dsl", "path": "trigger.star", "timeout": timeout}
        found["trigger"] = {"path": "trigger.star", "text": TRIGGER}
    if scripts == "all":
        step |= {"key": {"type": "dsl", "path": "key.star"}, "dsl": {"path": "aggregate.star"}}
        found["key"] = {"path": "key.star", "text": KEY}
        found["aggregate"] = {"path": "aggregate.star", "text": AGGREGATE}
    return found


def _user(number: Column) -> Column:
    return text("key-", F.pmod(F.xxhash64(number), F.lit(KEYS)))


def _work(scripts: str) -> Work:
    return Work(
        operator=_operator(scripts),
        topics=("bench-clicks",),
        topic=lambda _: F.lit("bench-clicks"),
        time=lambda number: number,
        key=_user,
        value=lambda number: text(
            '{"id":',
            number,
            ',"user":"',
            _user(number),
            '","sum":',
            F.pmod(number, F.lit(7)),
            ',"note":"' + "x" * 60 + '"}',
        ),
        told={"scripts": scripts},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--scripts", choices=("none", "trigger", "all"), default="none")
    given, sys.argv[1:] = parser.parse_known_args()
    main("spark_aggregate", _work(given.scripts), __doc__)
