"""The metrics of several processes, with the number of each."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.processes.rules.numbers import together


class Found(Collector):
    def __init__(self, *texts: tuple[int, str]) -> None:
        self._texts = texts

    def collect(self) -> list[Metric]:
        return list(together(self._texts))


def of_process(handled: int) -> str:
    registry = CollectorRegistry()
    counter = Counter("dovecote_records", 'Records, by "outcome".', ["topic"], registry=registry)
    counter.labels('odd "topic"\\\n').inc(handled)
    Gauge("dovecote_lag", "Lag.", registry=registry).set(float("nan"))
    Histogram("dovecote_seconds", "Time.", buckets=[1], registry=registry).observe(0.5)
    return generate_latest(registry).decode()


def test_each_series_has_the_number_of_its_process_and_nothing_else_changes() -> None:
    one = of_process(3)
    text = generate_latest(Found((0, one), (1, of_process(4)))).decode()
    assert text.count("# TYPE dovecote_records_total counter") == 1
    assert 'dovecote_records_total{process="0",topic="odd \\"topic\\"\\\\\\n"} 3.0' in text
    assert 'dovecote_records_total{process="1",topic="odd \\"topic\\"\\\\\\n"} 4.0' in text
    assert 'dovecote_lag{process="1"} NaN' in text
    assert 'dovecote_seconds_bucket{le="1.0",process="0"} 1.0' in text

    def names(of: str) -> list[str]:
        return sorted({line.partition("{")[0] for line in of.splitlines()})

    kinds = [line for line in one.splitlines() if line.startswith("#")]
    assert set(kinds) <= set(text.splitlines())


def test_without_a_process_there_is_nothing() -> None:
    assert generate_latest(Found()) == b""


def test_text_that_is_none_of_metrics_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"<html>|could not|invalid"):
        list(together([(0, "<html>\n")]))
