"""A job works with the rights that docs/security.md lists, and names a missing one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from outbox import DovecoteError
from spark_jobs.query.settings import DedupSettings
from tests.spark.fix_spark import PARTITIONS, Job
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
def test_a_job_needs_its_rights_and_names_a_missing_one(
    kafka: Guarded,
    topic: MakeTopic,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    names = {
        "topic": topic(1),
        "output_topic": topic(1),
        "retry_topic": topic(1),
        "dead_letter_topic": topic(1),
    }
    bootstrap = kafka.stack.kafka.bootstrap

    def rights(query: str) -> dict[Right, bool]:
        return listed("Spark job", query=query, **names)

    def job(query: str, given: list[Right]) -> Job:
        settings = DedupSettings.model_validate(
            {
                "kafka": kafka.client(given),
                "source": {"topics": [names["topic"]]},
                "operator": {"type": "first_match"},
                "output": {
                    "topic": names["output_topic"],
                    "retry_topic": names["retry_topic"],
                    "dead_letter_topic": names["dead_letter_topic"],
                },
                "spark": {
                    "query": query,
                    "checkpoint": str(tmp_path / query),
                    "shuffle_partitions": PARTITIONS,
                    "trigger": "available_now",
                },
                "transaction_timeout": "10s",
            }
        )
        return Job(kafka.address, tmp_path, settings, spark)

    whole = f"whole-{uuid4().hex[:8]}"
    first = job(whole, [*rights(whole)])
    replace(first, kafka=bootstrap).send(("k", b"{}", [("ce_id", b"e1")]))
    first.run()
    assert len(replace(first, kafka=bootstrap).output()) == 1

    for number, (right, needed) in enumerate(rights("").items()):
        query = f"less-{number}-{uuid4().hex[:8]}"
        given = [*rights(query)]
        missing = given.pop(number)
        if right.operation == "DescribeConfigs":
            # A topic that is there is looked at.
            job(query, [*given, missing]).run()
        if not needed:
            job(query, given).run()
            continue
        with pytest.raises(DovecoteError) as refused:
            job(query, given).run()
        assert f"grant this user {missing.said}" in str(refused.value)
