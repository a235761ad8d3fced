"""A consumer says that no broker answers, and not while a broker is shown another token."""

import json
from typing import Any

import pytest

from dedup.consumer import Consumer
from tests.support.consuming import settings

IDENTITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "identity": json.dumps(
        {
            "provider": "oidc",
            "token_url": "https://id.example.com/token",
            "client_id": "shop",
            "client_secret": "tops3cret",
        }
    ),
}
SILENT = "no Kafka broker answers"


def statistics(state: str) -> str:
    brokers = {"b": {"nodeid": 1, "state": state}}
    return json.dumps({"brokers": brokers, "cgrp": {"state": "up", "join_state": "init"}})


@pytest.mark.parametrize(("kafka", "looks"), [({}, 1), (IDENTITY, 2)])
def test_no_broker_answers_when_none_was_up_as_often_as_it_takes(
    kafka: dict[str, Any], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(settings("127.0.0.1:9", "orders", kafka=kafka), lambda _: None)

    class Alone:
        is_alone = False

    monkeypatch.setattr(consumer, "_subscribing", Alone(), raising=False)
    for _ in range(2):  # it counts anew after each broker that is up
        consumer._statistics(statistics("UP"))
        for _ in range(looks - 1):
            consumer._statistics(statistics("REAUTH"))
            assert SILENT not in consumer.health.ready().reason
        consumer._statistics(statistics("AUTH_REQ"))
        assert SILENT in consumer.health.ready().reason
