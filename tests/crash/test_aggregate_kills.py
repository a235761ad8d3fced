"""
An aggregation that is killed at any moment makes the same of its windows, and makes it once.

Key, trigger and sums come from scripts. Their processes end with the Python workers that are
killed, and so do the JVM and the driver. The expected output is computed only from what was sent.
`DOVECOTE_KILLS_OF_AGGREGATIONS=50` makes it long.
"""

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dovecote.devstack import Stack
from tests.crash.spark_storm import PATIENCE, storm
from tests.support.fix_stack import new_topics
from tests.support.waiting import consume, patient, until

KILLS = int(os.environ.get("DOVECOTE_KILLS_OF_AGGREGATIONS", "2"))
USERS, AT_ONCE = 20, 3
SCRIPTS = {
    "key.star": """
def key(IN, Env):
    return IN["user"]
""",
    "trigger.star": """
def trigger(IN, Env):
    Env.cache["sum"] = Env.cache.get("sum", 0) + IN["sum"]
    return "fireAndPurge" if Env.cache["sum"] >= 10 else "continue"
""",
    "sum.star": """
def aggregate(IN, Env):
    total = 0
    for event in IN:
        total += event["sum"]
    return struct(OUT={"user": Env.AggregationKey, "sum": total, "first": IN[0]["n"]})
""",
}


def flow(folder: Path, kafka: str, source: str, output: str, error: str) -> Path:
    """Write a flow of one step; return its path."""
    config = {"type": "kafka", "name": "here"}

    def place(name: str, topic: str) -> dict[str, object]:
        return {"name": name, "type": "destination", "topic": topic, "config": config}

    step = {
        "name": "sums",
        "type": "aggregation",
        "key": {"type": "dsl", "path": "key.star"},
        "trigger": {"type": "dsl", "path": "trigger.star", "timeout": 86_400_000},
        "dsl": {"path": "sum.star"},
        "destination": place("out", output),
        "error": place("error", error),
    }
    (folder / "scripts").mkdir()
    for name, text in SCRIPTS.items():
        (folder / "scripts" / name).write_text(text)
    file = folder / "flow.json"
    file.write_text(
        json.dumps(
            {
                "source": {"name": "in", "type": "source", "topic": source, "config": config},
                "connections": {"here": {"bootstrap.servers": kafka}},
                "steps": [step],
                "state": {"buckets": 3},
                "spark": {
                    "query": "sums",
                    "checkpoint": str(folder / "checkpoint"),
                    "shuffle_partitions": 2,
                    "trigger": "200ms",
                },
            }
        )
    )
    return file


def windows(sent: list[dict[str, int]]) -> Counter[str]:
    """Return what the step must make of the events, with each user's in order."""
    found: Counter[str] = Counter()
    for user in {event["user"] for event in sent}:
        first = total = 0
        for event in sent:
            if event["user"] != user:
                continue
            first = first if total else event["n"]
            total += event["sum"]
            if total >= 10:
                found[json.dumps({"user": str(user), "sum": total, "first": first})] += 1
                total = 0
    return found


@pytest.mark.timeout(max(900, 60 * KILLS))
def test_killed_aggregations_make_of_each_window_what_it_is_once(
    module_stack: Stack, tmp_path: Path
) -> None:
    dice, began = random.Random(KILLS), time.time_ns() // 1_000_000
    kinds = ["worker", "driver", "jvm"]
    plan = [*kinds, *dice.choices(kinds, [4, 1, 1], k=KILLS)][:KILLS]
    sent: list[dict[str, int]] = []
    with new_topics(module_stack) as make:
        source, output, error = make(2), make(2), make()
        kafka = module_stack.kafka.bootstrap
        producer = Producer({"bootstrap.servers": kafka})

        def send() -> None:
            for user in range(USERS):
                for _ in range(AT_ONCE):
                    event = {"user": user, "n": len(sent), "sum": dice.randint(1, 9)}
                    sent.append(event)
                    value = json.dumps({**event, "user": str(user)}).encode()
                    moment = began + len(sent)
                    producer.produce(source, value, str(user), timestamp=moment)
            assert producer.flush(patient(60)) == 0

        file = flow(tmp_path, kafka, source, output, error)
        with storm(module_stack, tmp_path, ["aggregate", "-c", str(file)], dice) as jobs:
            for what in plan:
                send()
                until(jobs.is_up, within=PATIENCE, what="a batch since the last kill")
                send()
                jobs.kill(what)
            send()
            expected = windows(sent)

            def told() -> bool:
                jobs.is_up()
                return len(consume(kafka, output)) >= expected.total()

            until(told, within=PATIENCE, what="all windows have fired")

        said = [json.loads(each.value() or b"") for each in consume(kafka, output)]
        assert Counter(map(json.dumps, said)) == expected
        assert not consume(kafka, error)
    assert sum(jobs.killed.values()) == KILLS
    print(f"{dict(jobs.killed)}, {jobs.starts} starts")  # noqa: T201  # for the long one
