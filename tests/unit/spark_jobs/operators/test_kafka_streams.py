"""
Sessions beside the results of Kafka Streams 4.1.0 for the same records.

`kafka_streams.jsonl` was recorded with its own classes (TopologyTestDriver, a store that forgets
nothing): 150 random traces, each with all changes, and with the final results of its two ways,
`suppress(untilWindowCloses)` and `EmitStrategy.onWindowClose`.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from spark_jobs.operators.step import Input
from tests.unit.spark_jobs.operators.kafka_model import final_by_emit, final_by_suppress, updates
from tests.unit.spark_jobs.operators.traces import record, sessions, whole

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("kafka_streams.jsonl").read_text().splitlines()
]


def _trace(recorded: dict[str, Any]) -> list[Input]:
    return [record(*each, offset=n) for n, each in enumerate(recorded["records"])]


def _windows(said: list[Any]) -> list[tuple[Any, ...]]:
    """Return key, bounds and values from Kafka Streams' results."""
    return [(*window, None if text is None else text.split(",")) for *window, text in said]


def _agrees_with_itself(recorded: dict[str, Any]) -> bool:
    """Return whether both ways have the same results, and none twice."""
    one, other = _windows(recorded["suppress"]), _windows(recorded["emit"])
    counted = Counter(value for *_, values in one for value in values)
    return sorted(one) == sorted(other) and set(counted.values()) <= {1}


def test_sessions_are_those_of_kafka_streams_where_it_agrees_with_itself() -> None:
    compared = 0
    for recorded in filter(_agrees_with_itself, RECORDED):
        operator = sessions(recorded["gap"], recorded["grace"], emit="final")

        found = [each[1:] for each in whole(operator, _trace(recorded)) if each[0] == "result"]

        assert sorted(found) == sorted(_windows(recorded["suppress"])), recorded
        compared += 1
    assert compared > len(RECORDED) // 2


def test_no_record_is_in_two_sessions_where_kafka_streams_says_one_twice() -> None:
    for recorded in RECORDED:
        operator = sessions(recorded["gap"], recorded["grace"], emit="final")
        found = [each for each in whole(operator, _trace(recorded)) if each[0] == "result"]

        counted = Counter(value for each in found for value in each[4])

        assert set(counted.values()) <= {1}, recorded
    assert not all(map(_agrees_with_itself, RECORDED))


def test_changes_are_those_of_kafka_streams_in_its_order() -> None:
    for recorded in RECORDED:
        operator = sessions(recorded["gap"], recorded["grace"])

        found = whole(operator, _trace(recorded))

        changes = [each[1:] for each in found if each[0] in {"update", "retract"}]
        if _agrees_with_itself(recorded):
            assert changes == _windows(recorded["update"]), recorded


def test_the_model_of_kafka_streams_says_what_kafka_streams_said() -> None:
    for recorded in RECORDED:
        asked = _trace(recorded), recorded["gap"], recorded["grace"]

        assert [each[1:] for each in updates(*asked)] == _windows(recorded["update"])
        assert sorted(final_by_suppress(*asked)) == sorted(_windows(recorded["suppress"]))
        assert sorted(final_by_emit(*asked)) == sorted(_windows(recorded["emit"]))
