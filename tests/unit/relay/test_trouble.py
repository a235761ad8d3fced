"""A relay's trouble is reported, and so is its recovery."""

import threading

import pytest

from relay.errors import LeaseLost, Outage
from relay.health import Health, Trouble
from relay.metrics import Metrics


@pytest.mark.parametrize(("role", "said"), [("active", "going on"), ("stopped", "ending")])
def test_who_ends_in_an_outage_does_not_say_that_it_goes_on(
    role: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dovecote")
    trouble, stop = Trouble(Health()), threading.Event()
    stop.set()
    trouble.failed(Outage("Kafka: away"), Metrics("x"), stop)
    trouble.recovered(role)  # type: ignore[arg-type]  # a parameter is any text
    first, last = caplog.messages
    assert first == "outage: Kafka: away; nothing is lost"
    assert last.startswith(f"{said} after ")


def test_a_failure_has_one_name_in_the_log_in_health_and_in_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    health, metrics, stop = Health(), Metrics("x"), threading.Event()
    stop.set()
    Trouble(health).failed(LeaseLost("its session has ended"), metrics, stop)
    assert caplog.messages == ["lease_lost: its session has ended; nothing is lost"]
    counted = metrics.registry.get_sample_value(
        "dovecote_relay_failures_total", {"outbox": "x", "kind": "lease_lost"}
    )
    assert counted == 1
    assert health.ready().reason == "lease_lost: its session has ended"
