"""A batch that cannot be read is the trouble of its subscription alone, and is stepped over."""

import pytest
import typer
from prometheus_client import generate_latest
from typer.testing import CliRunner

from dovecote.cli.push.subscriptions import skip
from dovecote.push.delivery import shape
from tests.support.consuming import event, open_transaction, produce
from tests.support.delivering import (
    Endpoint,
    Pushing,
    all_committed,
    first_attempts,
    pushing,
    subscribed,
)
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import LEAST, TOKEN, Client, idle, installed, push_settings
from tests.support.unreadable import LIMITS, produce_bomb
from tests.support.waiting import until

push_skip = typer.Typer()
push_skip.command()(skip)


def until_counted(push: Pushing, line: str) -> None:
    def is_counted() -> bool:
        metrics = generate_latest(push.engine.metrics.registry).decode()
        return f"dovecote_push_{line}" in metrics

    until(is_counted, within=10, what=line)


def test_a_batch_that_cannot_be_read_holds_one_subscription_and_is_stepped_over_by_name(
    stack: Servers, topic: MakeTopic, database: str
) -> None:
    name, other, kafka = topic(), topic(), stack.kafka.bootstrap
    produce(kafka, event(name, "k", 0))
    produce_bomb(kafka, name)
    produce(kafka, event(name, "k", 1))
    limited = {"default": {"bootstrap.servers": kafka, **LIMITS}}
    stored = {**LEAST, "id": name, "topics": [name]}
    with (
        Endpoint() as endpoint,
        installed(database) as dsn,
        idle(push_settings(dsn, kafka, brokers=limited)) as (api, _),
        pushing(
            kafka,
            subscribed(name, endpoint.url),
            subscribed(other, endpoint.url),
            brokers=limited,
        ) as push,
    ):
        client = Client(api.at.port)
        assert client("POST", "/subscriptions", stored).status == 201
        why = f"{name}/0 does not go on at offset 1: Decompression"
        until(lambda: why in push.snapshot(name).trouble, within=20, what=why)
        until_counted(push, f'stuck_partitions{{subscription="{name}"}} 1.0')
        produce(kafka, event(other, "other", 0))
        endpoint.has_got(2)
        until(lambda: not push.snapshot(other).trouble, within=10, what="no trouble elsewhere")
        path = f"/subscriptions/{name}/skip"
        place = {"topic": name, "partition": 0, "offset": 0, "why": "a test"}
        refused = client("POST", path, place)
        assert (refused.status, "can be read" in refused.body["error"]) == (422, True)
        refused = client("POST", path, {**place, "topic": other})
        assert (refused.status, "does not read" in refused.body["error"]) == (422, True)
        refused = client("POST", path, {**place, "partition": 9})
        assert (refused.status, f"no {name}/9" in refused.body["error"]) == (422, True)
        assert client("POST", path, {**place, "why": ""}).status == 422
        url = f"http://127.0.0.1:{api.at.port}"
        done = CliRunner().invoke(
            push_skip,
            [name, f"{name}/0/1", "--why", "agreed", "--by", "ann", "--api", url],
            env={"DOVECOTE_API_TOKEN": TOKEN},
        )
        assert done.output == f"{name}/0: offsets 1 to 1 are stepped over\n"
        endpoint.has_got(3)
        all_committed(kafka, name)
        until(lambda: not push.snapshot(name).trouble, within=10, what="no trouble")
        assert first_attempts(endpoint) == {"k": [0, 1], "other": [0]}


def test_a_transaction_that_is_open_is_the_trouble_of_its_subscription(
    stack: Servers, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, kafka, usual = topic(), stack.kafka.bootstrap, shape.consumer_settings
    monkeypatch.setattr(
        shape, "consumer_settings", lambda *given: {**usual(*given), "stall_after": "1s"}
    )
    produce(kafka, event(name, "k", 0))
    with Endpoint() as endpoint, pushing(kafka, subscribed(name, endpoint.url)) as push:
        endpoint.has_got(1)
        with open_transaction(kafka, name):
            why = f"{name}/0 is held back at offset 1: a transaction of a producer"
            until(lambda: why in push.snapshot(name).trouble, within=30, what=why)
            until_counted(push, f'held_back_partitions{{subscription="{name}"}} 1.0')
            until_counted(push, f'stuck_partitions{{subscription="{name}"}} 0.0')
        until(lambda: not push.snapshot(name).trouble, within=20, what="no trouble")
