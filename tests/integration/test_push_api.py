"""The API of push: subscriptions are stored, changed and shown, and callers must be authorised."""

import json
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dovecote.push.api.access import hashed
from dovecote.push.process import Running
from dovecote.push.store import schema
from dovecote.push.store.lease import Lease
from tests.support.crews import new_role
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import LEAST, Client, Idle, attempt, idle, installed, push_settings
from tests.support.waiting import patient, until

TOLD = "s3-told-by-the-environment"
V1 = "whsec_" + "A" * 32


@pytest.fixture
def tables(database: str) -> Iterator[str]:
    with installed(database) as dsn:
        yield dsn


@pytest.fixture
def process(tables: str, stack: Servers) -> Iterator[tuple[Running, Idle]]:
    with idle(push_settings(tables, stack.kafka.bootstrap), PUSH_SECRET_T=TOLD) as found:
        yield found


@pytest.fixture
def client(process: tuple[Running, Idle]) -> Client:
    return Client(process[0].at.port)


def with_secrets() -> dict[str, Any]:
    headers = {"X-Key": "hidden", "X-Ref": "env:T", "Content-Type": "text/plain"}
    return {
        **LEAST,
        "endpoint": {**LEAST["endpoint"], "headers": headers},
        "signing": {"secrets": [V1]},
    }


def test_a_subscription_is_made_told_paused_resumed_and_forgotten(
    client: Client, process: tuple[Running, Idle]
) -> None:
    engine = process[1]
    made = client("POST", "/subscriptions", LEAST)
    assert made.status == 201, made
    assert client("POST", "/subscriptions", LEAST).status == 200
    assert client("POST", "/subscriptions", {**LEAST, "topics": ["x"]}).status == 409
    until(lambda: "slack" in engine.work, within=5, what="work")
    told = until(
        lambda: (found := client("GET", "/subscriptions/slack").body)["delivery"]["lag"] and found,
        within=5,
        what="report",
    )
    assert told["delivery"]["processes"] == 1
    assert told["counts"] == {"delivered": 0, "failed": 0, "dead": 0}
    assert [each["id"] for each in client("GET", "/subscriptions").body] == ["slack"]
    assert client("POST", "/subscriptions/slack/pause").body["status"]["state"] == "paused"
    until(lambda: not engine.work, within=5, what="no work")
    assert client("POST", "/subscriptions/slack/resume").body["status"]["state"] == "active"
    until(lambda: "slack" in engine.work, within=5, what="work again")
    before = engine.work["slack"].version
    changed = {**LEAST, "limits": {"rate": 5.0}}
    assert client("PUT", "/subscriptions/slack", changed).status == 200
    until(lambda: engine.work["slack"].version > before, within=5, what="another version")
    assert engine.work["slack"].subscription.limits.rate == 5.0
    assert client("DELETE", "/subscriptions/slack").status == 200
    until(lambda: not engine.work, within=5, what="no work")
    assert client("GET", "/subscriptions/slack").status == 404
    assert client("POST", "/subscriptions/slack/pause").status == 404


def test_what_was_disabled_and_resumed_before_anybody_looked_begins_anew(
    client: Client, process: tuple[Running, Idle], tables: str
) -> None:
    engine = process[1]
    client("POST", "/subscriptions", LEAST)
    until(lambda: "slack" in engine.work, within=5, what="work")
    before = engine.work["slack"].version
    change = "UPDATE push.subscriptions SET since = now(), state = %s WHERE id = 'slack'"
    with psycopg.connect(tables) as conn:
        conn.execute(change, ["disabled"])
        conn.execute(change, ["active"])
    # An endpoint's 410 has ended the subscription; it would not be taken up again.
    until(lambda: engine.work["slack"].version > before, within=5, what="another version")


def test_explicit_partitions_are_set_back_when_who_read_them_has_ended(
    client: Client, tables: str, stack: Servers, topic: MakeTopic
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    producer.produce(name, b"x")
    assert producer.flush(patient(20)) == 0
    read = [{"topic": name, "numbers": [0]}]
    wanted = {**LEAST, "topics": [], "partitions": read, "group": f"{name}.group"}
    made = client("POST", "/subscriptions", wanted)
    assert made.status == 201, made
    reader = Lease(tables, "push", "slack")
    assert reader.take(lambda: None)
    ours = {"bootstrap.servers": stack.kafka.bootstrap, "group.id": f"{name}.group"}
    with closing(Consumer(ours)) as consumer, ThreadPoolExecutor(1) as pool:
        last = [TopicPartition(name, 0, 1)]
        consumer.commit(offsets=last, asynchronous=False)
        asked = pool.submit(client, "POST", "/subscriptions/slack/replay", {"start": "earliest"})
        until(
            lambda: client("GET", "/subscriptions/slack").body["status"]["state"] == "paused",
            within=5,
            what="the subscription is paused",
        )
        assert not wait([asked], timeout=2).done
        consumer.commit(offsets=last, asynchronous=False)  # the last thing that a reader does
        reader.close()
        assert asked.result(patient(20)).status == 200
        assert [each.offset for each in consumer.committed([TopicPartition(name, 0)])] == [0]


def test_a_group_is_set_by_one_at_a_time_and_is_no_longer_held_by_one_that_ended(
    client: Client, tables: str, topic: MakeTopic
) -> None:
    name = topic(1)
    read = [{"topic": name, "numbers": [0]}]
    client("POST", "/subscriptions", {**LEAST, "topics": [], "partitions": read})
    # A subscription that is already paused does not let a second one in.
    assert client("POST", "/subscriptions/slack/pause").status == 200
    reader = Lease(tables, "push", "slack")
    assert reader.take(lambda: None)
    path, start = "/subscriptions/slack/replay", {"start": "earliest"}
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(client, "POST", path, start) for _ in range(2)]
        refused = wait(asked, timeout=patient(20), return_when=FIRST_COMPLETED).done.pop().result()
        reader.close()
        assert sorted(each.result(patient(20)).status for each in asked) == [200, 409]
    assert "is being set to another position" in refused.body["error"]
    assert client("GET", "/subscriptions/slack").body["status"]["state"] == "paused"
    # Like somebody who was killed in the middle leaves it.
    with psycopg.connect(tables) as conn:
        conn.execute("UPDATE push.subscriptions SET reason = 'set to another position'")
    assert client("POST", path, start).status == 200
    assert client("GET", "/subscriptions/slack").body["status"]["state"] == "active"


def test_a_subscription_that_is_none_stops_no_other(
    client: Client,
    process: tuple[Running, Idle],
    tables: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = process[1]
    with psycopg.connect(tables) as conn:
        conn.execute("INSERT INTO push.subscriptions (id, spec) VALUES ('broken', '{}')")
    client("POST", "/subscriptions", LEAST)
    until(lambda: "slack" in engine.work, within=5, what="work")
    told = until(
        lambda: client("GET", "/subscriptions/broken").body["delivery"]["trouble"],
        within=5,
        what="trouble",
    )
    assert "endpoint: is missing" in told
    client("POST", "/subscriptions", {**LEAST, "id": "other"})
    until(lambda: "other" in engine.work, within=5, what="all are looked at again")
    assert caplog.text.count("subscription broken cannot be delivered") == 1
    assert client("DELETE", "/subscriptions/broken").status == 200


def test_secrets_reach_the_engine_and_nobody_else(
    client: Client, process: tuple[Running, Idle], tables: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = process[1]
    answers = [
        client("POST", "/subscriptions", with_secrets()),
        client("GET", "/subscriptions"),
        client("GET", "/subscriptions/slack"),
        client("GET", "/broker/subscription"),
    ]
    until(lambda: "slack" in engine.work, within=5, what="work")
    found = engine.work["slack"].subscription
    assert found.endpoint.headers["X-Ref"].get_secret_value() == TOLD
    assert found.endpoint.headers["X-Key"].get_secret_value() == "hidden"
    assert found.signing is not None
    assert found.signing.secrets[0].get_secret_value() == V1
    with psycopg.connect(tables) as conn:
        row = conn.execute("SELECT spec::text FROM push.subscriptions").fetchone()
    assert row is not None
    for text in (*(json.dumps(each.body) for each in answers), row[0], caplog.text):
        assert "hidden" not in text
        assert V1.partition("_")[2] not in text
        assert TOLD not in text
    assert answers[0].body["endpoint"]["headers"]["X-Ref"] == "env:T"
    assert answers[0].body["endpoint"]["headers"]["Content-Type"] == "text/plain"


def test_subscriptions_and_what_came_of_them_survive_a_restart(
    tables: str, stack: Servers
) -> None:
    settings = push_settings(tables, stack.kafka.bootstrap)
    with idle(settings) as (found, engine):
        client = Client(found.at.port)
        client("POST", "/subscriptions", {**with_secrets(), "id": "a", "signing": None})
        for number in range(150):
            engine.book.attempted(attempt("a", number))
        engine.book.attempted(attempt("nobody", 0))
        engine.book.disable("a", LEAST["endpoint"]["url"], "it answered 410")
        until(
            lambda: client("GET", "/subscriptions/a").body["status"]["state"] == "disabled",
            within=5,
            what="disabled",
        )
    with idle(settings) as (found, engine):
        client = Client(found.at.port)
        told = client("GET", "/subscriptions/a").body
        assert told["status"]["reason"] == "it answered 410"
        assert told["counts"] == {"delivered": 75, "failed": 75, "dead": 0}
        kept = client("GET", "/subscriptions/a/attempts").body
        assert [each["offset"] for each in kept] == list(range(149, 49, -1))
        assert kept[0]["detail"] == "<b>no?"
        assert not engine.work
        client("POST", "/subscriptions/a/resume")
        until(lambda: engine.work or found.feed.snapshot(), within=5, what="work")
        # Its reference is not in this environment: that is reported, and does not disturb the
        # others.
        assert "X-Ref" not in engine.work
        assert "PUSH_SECRET_T is not set" in found.feed.snapshot()["a"].trouble


def test_two_processes_follow_the_same_subscriptions(tables: str, stack: Servers) -> None:
    settings = push_settings(tables, stack.kafka.bootstrap)
    with idle(settings) as (one, _), idle(settings) as (_, other):
        Client(one.at.port)("POST", "/subscriptions", LEAST)
        until(lambda: "slack" in other.work, within=5, what="work in the other process")

        def reported() -> tuple[int, int, int]:
            delivery = Client(one.at.port)("GET", "/subscriptions/slack").body["delivery"]
            return delivery["processes"], delivery["in_flight"], delivery["lag"]

        until(lambda: reported() == (2, 6, 14), within=5, what="both report")


def test_a_role_with_the_rights_that_init_grants_can_do_all_of_it(
    database: str, stack: Servers
) -> None:
    with new_role(database) as (role, dsn):
        with psycopg.connect(database) as conn:
            schema.install(conn, roles=[role])
        with idle(push_settings(dsn, stack.kafka.bootstrap)) as (found, engine):
            client = Client(found.at.port)
            assert client("POST", "/subscriptions", with_secrets() | {"id": "a"}).status == 201
            engine.book.attempted(attempt("a", 1))
            until(lambda: client("GET", "/subscriptions/a/attempts").body, within=5, what="one")
            assert client("POST", "/subscriptions/a/pause").status == 200
            assert client("DELETE", "/subscriptions/a").status == 200


def test_the_original_routes_take_and_give_the_original_names(client: Client, tables: str) -> None:
    body = {
        "id": "slack",
        "group": {"id": "g"},
        "broker": "default",
        "topics": [
            {
                "name": "flights",
                "config": {"concurrencyFactor": 10, "autoCommitPeriodMs": 100, "loadFactor": 2.0},
            }
        ],
        "subscriptionMethod": {
            "type": "http",
            "uri": "http://hooks.example/x",
            "method": "POST",
            "queryParamKey": "message",
            "charset": "UTF-8",
            "additionalHeaders": {"Content-Type": "application/json"},
            "delayOnErrorMs": 1000,
            "retryBeforeCommit": 10,
        },
    }
    assert client("POST", "/broker/subscription", body).body == body
    assert client("POST", "/broker/subscription", body).status == 200
    assert client("GET", "/broker/subscription").body == [body]
    assert client("GET", "/subscriptions/slack_g").body["retry"]["resends"] == 10
    assert client("POST", "/broker/unsubscribe", body).body == body
    assert client("POST", "/broker/unsubscribe", body).status == 404
    assert client("GET", "/broker/subscription").body == []
    client("POST", "/broker/subscription", body)
    with psycopg.connect(tables) as conn:
        conn.execute("UPDATE push.subscriptions SET spec = spec - 'endpoint'")
    assert client("GET", "/broker/subscription").body == []
    assert client("POST", "/broker/unsubscribe", body)[:2] == (200, body)
    assert client("GET", "/subscriptions").body == []
    wrong = client("POST", "/broker/subscription", {**body, "topics": [{"nam": "x"}]})
    assert {each["path"] for each in wrong.body["problems"]} == {"topics.0.name", "topics.0.nam"}


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        (b"{", 400, None),
        (b"[" * 100_000, 400, None),
        (b"\xff", 400, None),
        (b"1" * 10_000, 400, None),
        ({}, 422, "id"),
        ([], 422, ""),
        ({**LEAST, "endpoint": {"url": "x"}}, 422, "endpoint.url"),
        ({**LEAST, "group": "a\0"}, 422, None),
        ({**LEAST, "broker": "elsewhere"}, 422, None),
        (b"{" + b" " * 300_000, 413, None),
    ],
)
def test_what_is_wrong_is_said_and_is_no_5xx(
    client: Client, body: object, status: int, path: str | None
) -> None:
    found = client("POST", "/subscriptions", body)
    assert found.status == status, found
    assert found.body["error"]
    if path is not None:
        assert path in {each["path"] for each in found.body["problems"]}


def test_with_a_token_too_only_our_hosts_and_their_pages_are_answered(
    tables: str, stack: Servers
) -> None:
    http = {"port": 0, "hosts": ["push.shop.example"]}
    with idle(push_settings(tables, stack.kafka.bootstrap, http=http)) as (found, _):
        client = Client(found.at.port)
        until(
            lambda: client("GET", "/readyz", Host="push.shop.example").status == 200,
            within=10,
            what="it is ready",
        )
        for path in ("/", "/subscriptions", "/metrics", "/readyz", "/openapi.json"):
            assert client("GET", path, Host="push.shop.example").status == 200
            for host in ("attacker.example", f"attacker.example:{found.at.port}", "[::1", ""):
                refused = client("GET", path, Host=host)
                assert (refused.status, "http.hosts" in refused.body["error"]) == (403, True)
        assert client("GET", "/subscriptions", Origin="https://attacker.example").status == 403
        assert client("GET", "/subscriptions", Origin="https://push.shop.example").status == 200
        assert client("GET", "/healthz", Host="attacker.example").status == 200


def test_without_tokens_the_one_in_the_users_own_file_is_needed(
    tables: str, stack: Servers, tmp_path: Path
) -> None:
    settings = push_settings(tables, stack.kafka.bootstrap, api={})
    file = tmp_path / "dovecote" / "push-token"
    for _ in range(2):  # a restart keeps it
        with idle(settings, XDG_STATE_HOME=str(tmp_path)) as (found, _):
            assert Client(found.at.port, None)("GET", "/subscriptions").status == 401
            token = file.read_text().strip()
            assert Client(found.at.port, token)("GET", "/subscriptions").status == 200
    assert file.stat().st_mode & 0o777 == 0o600


def test_with_tokens_nothing_but_one_of_them_opens(tables: str, stack: Servers) -> None:
    api = {"tokens": {"ops": hashed("one"), "ci": hashed("two")}}
    with idle(push_settings(tables, stack.kafka.bootstrap, api=api)) as (found, _):
        port = found.at.port
        for token in ("one", "two"):
            assert Client(port, token)("GET", "/subscriptions").status == 200
        refused = Client(port, None)("GET", "/subscriptions")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        for header in ("Bearer", "Bearer three", "Basic one", "one", "Bearer " + hashed("one")):
            assert Client(port, None)("GET", "/subscriptions", Authorization=header).status == 401
        for path in ("/", "/page.css", "/page.js", "/openapi.json", "/metrics", "/healthz"):
            assert Client(port, None)("GET", path).status == 200
        until(lambda: Client(port, None)("GET", "/readyz").status == 200, within=5, what="ready")
