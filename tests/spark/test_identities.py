"""A job on a broker that wants tokens: the driver and the workers get them themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from proof.identities.provider import Guarded, guarded
from spark_jobs.query.settings import DedupSettings
from tests.spark.fix_spark import PARTITIONS, Job
from tests.support.fix_stack import new_topics


@pytest.fixture(scope="module")
def servers() -> Iterator[Guarded]:
    with guarded(60) as running:
        yield running


def test_no_token_travels_and_every_process_of_a_job_gets_one(
    servers: Guarded, spark: SparkSession, tmp_path: Path
) -> None:
    with new_topics(servers.stack) as topic:
        settings = DedupSettings.model_validate(
            {
                "kafka": servers.kafka(),
                "source": {"topics": [topic(2)]},
                "operator": {"type": "exact"},
                "output": {
                    "topic": topic(2),
                    "retry_topic": topic(),
                    "dead_letter_topic": topic(),
                },
                "spark": {
                    "query": "identities",
                    "checkpoint": str(tmp_path / "checkpoint"),
                    "shuffle_partitions": PARTITIONS,
                    "trigger": "available_now",
                },
            }
        )
        job = Job(servers.stack.kafka.bootstrap, tmp_path, settings, spark)
        job.send(*((f"k{n}", b"{}", [("ce_id", f"e{n}".encode())]) for n in range(8)))
        before = len(servers.provider.given)
        job.run()
        assert len(job.output()) == 8
        assert len(servers.provider.given) - before >= 2, "the driver, and a worker"
        job.send(("k9", b"{}", [("ce_id", b"e9")]))
        job.run()
        assert len(job.output()) == 9
    kept = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert not any(b"Bearer" in each or b"eyJ" in each for each in kept)
