"""The HTTP answers for a supervisor and for Prometheus."""

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dovecote.process.http.safe_headers import SAFE
from dovecote.process.http.state import serve
from outbox.errors import BadSettings
from relay.health import Health
from relay.metrics import Metrics, Together
from tests.support.rows import row
from tests.support.waiting import patient


def get(port: int, path: str) -> tuple[int, str, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=patient(5)) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_ready_follows_health_and_alive_does_not() -> None:
    health = Health()
    with serve("127.0.0.1", 0, health, Metrics("shop").registry) as port:
        health.progressed("active")
        status, kind, body = get(port, "/readyz")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body) == {
            "ok": True,
            "role": "active",
            "reason": "progressing",
            "state": "idle",
        }
        health.failing('outage: "Kafka"')
        status, _, body = get(port, "/readyz?verbose")
        assert status == 503
        assert json.loads(body)["reason"] == 'outage: "Kafka"'
        assert get(port, "/healthz")[0] == 200
        assert get(port, "/")[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/none"])
def test_no_browser_runs_guesses_frames_or_keeps_an_answer(path: str) -> None:
    with serve("127.0.0.1", 0, Health(), Metrics("shop").registry) as port:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=patient(5)) as answer:
                headers = answer.headers
        except HTTPError as error:
            headers = error.headers
            error.close()
    assert {name: headers[name] for name in SAFE} == SAFE


def test_the_metrics_are_prometheus_text() -> None:
    metrics = Metrics('sh"op')
    metrics.published([row(1, topic="a"), row(1, topic="a"), row(1, topic="b"), row(1, topic="a")])
    metrics.failed("outage")
    metrics.batches.inc()
    with serve("127.0.0.1", 0, Health(), metrics.registry) as port:
        _, kind, body = get(port, "/metrics")
    assert kind.startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(body)}
    published = {
        sample.labels["topic"]: sample.value
        for sample in families["dovecote_relay_events_published"].samples
        if sample.name.endswith("_total")
    }
    assert published == {"a": 3, "b": 1}
    assert {
        sample.labels["outbox"] for family in families.values() for sample in family.samples
    } == {'sh"op'}


def test_shards_are_told_on_one_page() -> None:
    one, two = Metrics("shop-0"), Metrics("shop-1")
    two.active.set(1)
    with serve("127.0.0.1", 0, Health(), Together((one, two))) as port:
        _, _, body = get(port, "/metrics")
    (active,) = [
        family
        for family in text_string_to_metric_families(body)
        if family.name == "dovecote_relay_active"
    ]
    told = {sample.labels["outbox"]: sample.value for sample in active.samples}
    assert told == {"shop-0": 0, "shop-1": 1}


def test_two_relays_in_one_process_count_apart() -> None:
    one, two = Metrics("shop"), Metrics("shop")
    one.batches.inc()
    assert two.registry.get_sample_value("dovecote_relay_batches_total", {"outbox": "shop"}) == 0


def test_a_port_in_use_is_bad_usage_and_names_the_setting() -> None:
    with (
        serve("127.0.0.1", 0, Health(), Metrics("a").registry) as port,
        pytest.raises(BadSettings, match=r"in use.*`http\.port`"),
        serve("127.0.0.1", port, Health(), Metrics("b").registry),
    ):
        pass
