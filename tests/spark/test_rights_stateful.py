"""A stateful job works with the rights that docs/security.md lists, and names a missing one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from outbox import DovecoteError
from tests.spark.fix_spark import PARTITIONS
from tests.spark.fix_stateful import T0, Sent, Stateful
from tests.support.fix_stack import MakeTopic, new_topics
from tests.support.guarded import Guarded, Right, guarded, listed


@pytest.fixture(scope="module")
def kafka() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture
def topic(kafka: Guarded) -> Iterator[MakeTopic]:
    with new_topics(kafka.stack) as make:
        yield make


@pytest.mark.slow
def test_a_stateful_job_needs_its_rights_and_names_a_missing_one(
    kafka: Guarded, topic: MakeTopic, tmp_path: Path, spark: SparkSession
) -> None:
    names = {
        "topic": topic(1),
        "output_topic": topic(1),
        "late_topic": topic(1),
        "dead_letter_topic": topic(1),
    }

    def rights(query: str) -> dict[Right, bool]:
        found = listed("Spark job", query=query, retry_topic="", **names)
        found |= listed("stateful Spark job", **names)
        return {right: is_needed for right, is_needed in found.items() if right.name}

    def job(query: str, given: list[Right]) -> Stateful:
        tables: dict[str, Any] = {
            "kafka": kafka.client(given),
            "source": {"topics": [names["topic"]]},
            "operator": {"type": "sessions", "gap": "5s", "grace": "1s", "max_lag": "off"},
            "output": {
                "topic": names["output_topic"],
                "late_topic": names["late_topic"],
                "dead_letter_topic": names["dead_letter_topic"],
            },
            "state": {"buckets": 1},
            "spark": {
                "query": query,
                "checkpoint": str(tmp_path / query),
                "shuffle_partitions": PARTITIONS,
                "trigger": "100ms",
            },
            "transaction_timeout": "10s",
        }
        return Stateful(kafka.address, tmp_path, "sessions", tables, spark)

    whole = f"whole-{uuid4().hex[:8]}"
    first = job(whole, [*rights(whole)])
    bare = replace(first, kafka=kafka.stack.kafka.bootstrap)
    bare.send(Sent(names["topic"], "k", T0, 1), Sent(names["topic"], "k", T0 + 20_000, 1))
    first.run_until(lambda: first.rows() == 2 and bare.written(), "a session is written")
    # Markers, transactions and groups are those of a job without state.
    for missing in (right for right in rights(whole) if right.name in names.values()):
        query = f"less-{uuid4().hex[:8]}"
        less = job(query, [right for right in rights(query) if right != missing])
        with pytest.raises(DovecoteError) as refused:
            less.run_until(lambda: None, "its end")
        assert f"grant this user {missing.said}" in str(refused.value)
