"""Counters that alerts watch are there before anything is counted."""

from collections.abc import Iterable

import pytest
from prometheus_client import Metric

from dedup.metrics import Metrics as ConsumerMetrics
from relay.health import KINDS
from relay.metrics import FAILURES
from relay.metrics import Metrics as RelayMetrics
from spark_jobs.query.metrics import Metrics as SparkMetrics

PLACES = [("orders", 0), ("orders", 1), ("returns", 0)]


def zeros(metrics: Iterable[Metric], name: str, label: str) -> set[str]:
    """Return the values of a label for which a counter is 0."""
    return {
        sample.labels[label]
        for metric in metrics
        for sample in metric.samples
        if sample.name == name and sample.value == 0
    }


def test_a_relay_counts_every_kind_of_failure_from_zero() -> None:
    metrics = RelayMetrics("shop").registry.collect()
    assert set(KINDS.values()) == set(FAILURES)
    assert zeros(metrics, "dovecote_relay_failures_total", "kind") == set(FAILURES)


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("records_total", "result", {"handled", "skipped", "retry", "dead_letter", "parked"}),
        ("rebalances_total", "kind", {"assigned", "revoked", "lost"}),
    ],
)
def test_a_consumer_counts_what_becomes_of_records_from_zero(
    name: str, label: str, expected: set[str]
) -> None:
    metrics = ConsumerMetrics("shipping").registry.collect()
    assert zeros(metrics, f"dovecote_consumer_{name}", label) == expected


@pytest.mark.parametrize("name", ["holds", "records_remembered", "doubts", "refused"])
def test_a_consumer_counts_what_is_rare_from_zero(name: str) -> None:
    metrics = ConsumerMetrics("shipping").registry.collect()
    assert zeros(metrics, f"dovecote_consumer_{name}_total", "group") == {"shipping"}


def test_a_consumer_counts_expired_offsets_of_its_topics_from_zero() -> None:
    metrics = ConsumerMetrics("shipping")
    metrics.has(PLACES)
    found = metrics.registry.collect()
    assert zeros(found, "dovecote_consumer_expired_total", "topic") == {"orders", "returns"}
    assert metrics.registry.get_sample_value(
        "dovecote_consumer_partitions", {"group": "shipping"}
    ) == len(PLACES)


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("rows_total", "query", {"days"}),
        ("expired_total", "query", {"days"}),
        ("records_total", "result", {"handled", "skipped", "retry", "dead_letter"}),
        ("records_skipped_total", "reason", {"late", "ahead"}),
        ("offset_commits_total", "outcome", {"ok", "failed"}),
    ],
)
def test_a_job_counts_from_zero(name: str, label: str, expected: set[str]) -> None:
    metrics = SparkMetrics("days").registry.collect()
    assert zeros(metrics, f"dovecote_spark_{name}", label) == expected
