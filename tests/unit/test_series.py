"""Series of metrics may be forgotten before there were any, also with the oldest client."""

from collections.abc import Callable

import pytest
from prometheus_client import Gauge

from dedup.metrics import Metrics as ConsumerMetrics
from dovecote.push.metrics import Metrics as PushMetrics
from spark_jobs.query.metrics import Metrics as SparkMetrics

_PLACE = ("orders", 0)


def of_consumer() -> None:
    metrics = ConsumerMetrics("shipping")
    metrics.gone([_PLACE])


def of_push() -> None:
    PushMetrics().forget("billing")


def of_spark() -> None:
    metrics = SparkMetrics("dedup")
    metrics.held_back({_PLACE})
    metrics.held_back(set())


@pytest.mark.parametrize("forget", [of_consumer, of_push, of_spark])
def test_a_series_that_there_is_not_is_no_error(
    forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(_self: Gauge, *labels: str) -> None:
        raise KeyError(labels)  # as prometheus_client 0.20 does

    monkeypatch.setattr(Gauge, "remove", remove)
    forget()
