"""The parts of a delivery, according to its subscription."""

from datetime import timedelta
from typing import Any

import pytest

from dedup.settings.consumer import ConsumerSettings
from dovecote.push.delivery import shape
from dovecote.push.rules.pacing.patience import FixedWait, FullJitter
from dovecote.push.rules.sending.request import Metadata
from dovecote.push.rules.subscription.subscription import Subscription, subscription

KAFKA = {"bootstrap.servers": "kafka:9092"}


def of(**given: Any) -> Subscription:
    source = {} if given.keys() & {"partitions", "pattern"} else {"topics": ["orders"]}
    return subscription(
        {"id": "x", "endpoint": {"url": "https://a.example/hook"}, **source, **given}
    )


def settings(**given: Any) -> ConsumerSettings:
    return ConsumerSettings.model_validate(shape.consumer_settings(of(**given), KAFKA))


def test_by_default_it_is_in_order_by_key_with_so_many_at_a_time() -> None:
    found = settings(limits={"max_in_flight": 200})
    assert (found.order, found.null_key, found.concurrency) == ("key", "apart", 200)
    assert found.topics == ("orders", "dovecote.push.x.requeued")
    assert found.group == "dovecote.push.x"
    assert found.policy == "every"


def test_bundles_are_in_no_order_and_read_ahead_by_the_load_factor() -> None:
    order = {
        "type": "per_partition",
        "concurrency_factor": 100,
        "load_factor": 3.0,
        "auto_commit_period": "250ms",
        "topics": {"other": {"concurrency_factor": 200, "auto_commit_period": "1s"}},
    }
    found = settings(order=order)
    assert (found.order, found.max_skew) == ("none", 600)
    assert found.commit_every == timedelta(milliseconds=250)
    assert found.client_properties()["enable.auto.commit"] is False
    assert shape.most_in_flight(of(order=order)) >= 100 * 50


def test_a_finished_bundle_waits_for_no_period() -> None:
    found = settings(order={"type": "per_partition", "concurrency_factor": 10})
    assert found.commit_every <= timedelta(milliseconds=10)


def test_partitions_and_patterns_are_read_as_the_consumer_says_them() -> None:
    assert settings(partitions=[{"topic": "a", "numbers": [0, 2]}]).partitions == {"a": (0, 2)}
    assert settings(pattern="orders-.*").topics[0] == "^(orders-.*)$"


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_new_group_begins_where_it_is_told(start: str) -> None:
    assert settings(start=start).start == start
    assert settings(start={"time": "2026-02-01T09:30:00+01:00"}).start == "earliest"


def test_a_fixed_delay_has_no_circuit_and_obeys_nothing() -> None:
    fixed = of(retry={"type": "fixed", "delay": "1s", "resends": 3})
    assert shape.breaker(fixed).threshold == 0
    assert not shape.rules(fixed).obeys
    assert shape.rules(of()).obeys
    assert shape.breaker(of()).threshold > 0
    assert shape.plan(fixed).dead_letters == "dovecote.push.x.dead"


def test_headers_are_told_to_the_endpoint_as_they_are() -> None:
    found = shape.form(
        of(
            endpoint={"url": "https://a.example", "headers": {"Authorization": "Bearer x"}},
            metadata_headers=True,
        )
    )
    assert ("Authorization", "Bearer x") in found.standing()
    assert ("QOH-Broker", "default") in found.standing()
    assert ("QOH-Consumer", "x_dovecote.push.x") in found.standing()


def test_what_a_subscription_says_of_requests_is_in_their_form() -> None:
    endpoint = {
        "url": "https://a.example/x",
        "method": "GET",
        "query_param_key": "event",
        "charset": "ISO-8859-1",
    }
    found = shape.form(
        of(
            endpoint=endpoint,
            format="cloudevents_binary",
            broker="east",
            consumer="me",
            metadata_headers=True,
        )
    )
    assert (found.url, found.method) == (endpoint["url"], "GET")
    assert (found.query_param_key, found.charset) == ("event", "ISO-8859-1")
    assert (found.format, found.metadata) == (
        "cloudevents_binary",
        Metadata("east", "me_dovecote.push.x"),
    )


def test_what_a_subscription_says_of_retries_is_in_its_plan() -> None:
    fixed = of(retry={"type": "fixed", "delay": "3s", "resends": 2})
    assert shape.plan(fixed).patience == FixedWait(delay=timedelta(seconds=3), resends=2)
    backoff = {"type": "backoff", "base": "2s", "ceiling": "9s", "max_attempts": 4}
    assert shape.plan(of(retry=backoff)).patience == FullJitter(
        base=timedelta(seconds=2), ceiling=timedelta(seconds=9), max_attempts=4
    )


def test_the_more_readers_a_process_has_the_less_often_an_idle_one_asks() -> None:
    def wait(readers: int, **kafka: str) -> str:
        found = shape.consumer_settings(of(), {**KAFKA, **kafka}, readers)
        return str(found["kafka"]["fetch.wait.max.ms"])

    assert [wait(n) for n in (1, 20, 21, 50, 100, 101, 5_000)] == [
        *("100", "100", "250", "250", "500", "1000", "1000")
    ]
    assert wait(900, **{"fetch.wait.max.ms": "40"}) == "40"
