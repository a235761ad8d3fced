"""A job of Spark waits for the rest of a certificate that is being renewed, or says so."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from outbox.errors import BadSettings
from spark_jobs.errors import KafkaUnavailable
from spark_jobs.query.resting import Arrivals
from spark_jobs.query.topics import require_matches
from spark_jobs.sink import kafka_options
from spark_jobs.sink.group import GroupOffsets
from tests.support.certificates import half_renewed
from tests.support.waiting import until

MISMATCH = "key values mismatch"


@pytest.fixture
def renewing(tmp_path: Path) -> tuple[dict[str, str], Callable[[], object]]:
    return half_renewed(tmp_path)


@pytest.fixture
def kafka(renewing: tuple[dict[str, str], Callable[[], object]]) -> dict[str, str]:
    return renewing[0]


def test_a_task_of_spark_waits_until_the_key_is_there(
    renewing: tuple[dict[str, str], Callable[[], object]],
) -> None:
    kafka, finish = renewing
    asked: list[int] = []

    def given() -> dict[str, Any]:
        asked.append(1)
        if len(asked) > 1:
            finish()
        return kafka_options.quiet(kafka)

    assert kafka_options.made(AdminClient, given) is not None
    assert len(asked) == 2


def test_a_task_of_spark_that_gets_no_client_says_that_kafka_is_not_to_be_had(
    kafka: dict[str, str],
) -> None:
    with pytest.raises(KafkaUnavailable, match=MISMATCH):
        kafka_options.made(AdminClient, lambda: kafka_options.quiet(kafka), patience=0)


def test_a_job_of_spark_that_begins_takes_it_for_wrong_settings(kafka: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match=rf"^\[kafka\]: .*{MISMATCH}"):
        require_matches(kafka, ["/orders.*/"])


def test_a_query_of_spark_goes_on(kafka: dict[str, str]) -> None:
    assert Arrivals(kafka).has_after({"orders": {0: 1}})
    failed = threading.Event()

    def committed(how: str) -> None:
        if how == "failed":
            failed.set()

    offsets = GroupOffsets(kafka, "query", committed)
    try:
        offsets.report({"orders": {0: 1}})
        until(failed.is_set, within=10, what="the failure is counted")
        assert offsets._thread.is_alive()
    finally:
        offsets.close()
