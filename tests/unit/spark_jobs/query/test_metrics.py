"""A job's metrics for Prometheus."""

from typing import Any

import pytest

from spark_jobs.query.metrics import Metrics
from spark_jobs.query.progress import Summary, line
from spark_jobs.query.settings import SparkSettings
from spark_jobs.query.watching import Watch, watching
from spark_jobs.sink.markers import Counts
from spark_jobs.stateful.settings import SessionsJob

SETTINGS = SessionsJob.model_validate(
    {
        # Nobody is there: reports to Kafka's tools must hold nothing up.
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "source": {"topics": ["t"]},
        "operator": {"type": "sessions", "gap": "5s"},
        "output": {"topic": "out", "dead_letter_topic": "dead"},
        "spark": {"query": "clicks", "checkpoint": "-", "trigger": "30s"},
    }
)


def _progress(batch: int, **sources: dict[str, Any]) -> dict[str, Any]:
    return {"batchId": batch, "durationMs": {"triggerExecution": 500}, "sources": [sources]}


def _told(watch: Watch, batch: int, done: Summary) -> None:
    progress = _progress(
        batch, endOffset={"t": {"0": 10, "1": 4}}, latestOffset={"t": {"0": 15, "1": 4}}
    )
    watch.finished(progress, done, line("clicks", progress, done, now=3_000))


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(
        f"dovecote_spark_{name}", {"query": "clicks", **labels}
    )


@pytest.fixture
def watch() -> Any:
    with watching(SETTINGS) as watch:
        yield watch


def test_batches_are_counted_by_what_became_of_their_rows(watch: Watch) -> None:
    counts = Counts(rows=9, handled=3, skipped={"late": 2, "duplicate": 1}, retried=1, dead=2)
    _told(watch, 0, Summary(counts=counts, replayed=1, newest=1_000))
    _told(watch, 1, Summary(counts=counts, replayed=0, newest=1_000))

    shown = {
        name: _value(watch.metrics, "records_total", result=name)
        for name in ("handled", "skipped", "retry", "dead_letter")
    }
    assert shown == {"handled": 6, "skipped": 6, "retry": 2, "dead_letter": 4}
    assert _value(watch.metrics, "rows_total") == 18
    assert _value(watch.metrics, "records_skipped_total", reason="late") == 4
    assert _value(watch.metrics, "batches_total") == 2
    assert _value(watch.metrics, "batch_seconds_sum") == 1.0
    assert _value(watch.metrics, "last_batch_seconds") == 0.5
    assert _value(watch.metrics, "partitions_replayed_total") == 1
    assert _value(watch.metrics, "lag_rows", topic="t", partition="0") == 5
    assert _value(watch.metrics, "lag_rows", topic="t", partition="1") == 0
    assert _value(watch.metrics, "lag_seconds") == 2.0
    assert _value(watch.metrics, "rows_per_second") == pytest.approx(18, rel=0.2)


def test_what_is_held_is_the_last_that_each_bucket_told(watch: Watch) -> None:
    first = Summary(
        counts=Counts(), replayed=0, newest=0, buckets={"0": [5, 2, 100], "7": [1] * 3}
    )
    later = Summary(counts=Counts(), replayed=0, newest=0, buckets={"7": [4, 3, 900]})
    _told(watch, 0, first)
    _told(watch, 1, later)

    shown = ("state_keys", "state_open", "state_bytes", "largest_bucket_bytes")
    assert [_value(watch.metrics, name) for name in shown] == [9, 5, 1000, 900]


def test_a_job_is_ready_when_a_batch_is_done_or_there_is_nothing_to_do(watch: Watch) -> None:
    assert not watch.health.ready().ok

    watch.idle()

    assert watch.health.ready().ok
    # The pause between two triggers is no standstill.
    assert watch.health.stall_after == 150.0
    assert (_value(watch.metrics, "last_progress_timestamp_seconds") or 0) > 0


def test_a_job_that_reads_all_and_ends_has_no_pause() -> None:
    settings = SparkSettings(query="q", checkpoint="-", trigger="available_now")

    assert settings.pause().total_seconds() == 0
