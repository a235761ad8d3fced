"""A token does what its scope allows, and cannot find out what else there is."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from dovecote.push.api.access import hashed
from dovecote.push.rules.access.routes import NEEDS
from dovecote.push.rules.access.scope import RIGHTS
from tests.support.consuming import committed
from tests.support.fix_stack import Servers, new_database
from tests.support.idle_push import Answer, Client, idle, installed, push_settings
from tests.support.topics import delete_topic, make_topic

TOPIC = f"orders-{uuid4().hex}"
OWN, FOREIGN, MISSING = "shop.a_shop-g", "till.a_till-g", "shop.none_shop-g"
LIMITED = {
    "topics": ["orders-*"],
    "groups": ["shop-*"],
    "dead_letter_topics": ["shop.dead"],
    "secrets": ["env:SHOP_*"],
    "endpoints": ["https://hooks.example/shop"],
}
EVERYWHERE = {name: ["*"] for name in LIMITED}


def tokens() -> dict[str, Any]:
    """Return the settings of a token of each kind; its name is the token."""
    found: dict[str, Any] = {
        "ops": hashed("ops"),
        "shop": {"sha256": hashed("shop"), "rights": RIGHTS, **LIMITED},
        "till": {"sha256": hashed("till"), "rights": RIGHTS, **LIMITED},
    }
    found["few"] = {**found["till"], "sha256": hashed("few"), "max_subscriptions": 3}
    for right in RIGHTS:
        own = {"owner": "shop", "subscriptions": "own"}
        for name, seen in ((f"{right}-own", own), (f"{right}-all", {"subscriptions": "all"})):
            told = {"sha256": hashed(name), "rights": [right], **seen, **EVERYWHERE}
            found[name] = told if seen is own else {**told, "ids": ["*"]}
    return found


KINDS = [None, "unknown", *(name for name in tokens() if name not in {"shop", "till", "few"})]
ROUTES = [route for route, need in NEEDS.items() if need in RIGHTS]


@dataclass
class Api:
    """The API with its database; called with a token, it sends a request."""

    port: int
    dsn: str
    kafka: str

    def __call__(self, token: str | None, method: str, path: str, body: object = None) -> Answer:
        return Client(self.port, token)(method, path, body)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return what is stored of all subscriptions."""
        query = "SELECT id, owner, spec::text, state, version FROM push.subscriptions ORDER BY id"
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query).fetchall()

    def has_two(self) -> None:
        """Store a subscription of `shop` and one of `till`, and no other."""
        with psycopg.connect(self.dsn) as conn:
            conn.execute("DELETE FROM push.subscriptions")
            for id_ in (OWN, FOREIGN):
                conn.execute(
                    "INSERT INTO push.subscriptions (id, owner, spec) VALUES (%s, %s, %s)",
                    [id_, id_.partition(".")[0], json.dumps(described(id_))],
                )


@pytest.fixture(scope="module")
def process(stack: Servers) -> Iterator[Api]:
    bootstrap = stack.kafka.bootstrap
    make_topic(bootstrap, TOPIC)
    with new_database(stack) as dsn, installed(dsn):
        settings = push_settings(dsn, bootstrap, api={"tokens": tokens()})
        with idle(settings) as (found, _):
            yield Api(found.at.port, dsn, bootstrap)
    delete_topic(bootstrap, TOPIC)


@pytest.fixture
def api(process: Api) -> Api:
    process.has_two()
    return process


def described(id_: str, **changes: Any) -> dict[str, Any]:
    endpoint = {"url": "https://hooks.example/shop/x"}
    group = id_.partition("_")[2]
    return {"id": id_, "group": group, "topics": [TOPIC], "endpoint": endpoint, **changes}


def filled(path: str, id_: str) -> str:
    """Return the path of a request, with what the route requires in its query."""
    query = "?where=key+%3D%3D+%27a%27" if path.endswith("/dead-search") else ""
    return path.replace(":path}", "}").format(id=id_, event="no") + query


def body(method: str, path: str, id_: str) -> object:
    """Return a body that the route takes."""
    name, _, group = id_.partition("_")
    method_ = {"uri": "https://hooks.example/shop"}
    original = {"topics": [{"name": TOPIC}], "subscriptionMethod": method_}
    return {
        ("POST", "/subscriptions"): described(id_),
        ("PUT", "/subscriptions/{id}"): described(id_),
        ("PATCH", "/subscriptions/{id}"): {"set": {"limits.rate": 5}},
        ("POST", "/subscriptions/{id}/replay"): {"start": "latest"},
        ("POST", "/subscriptions/{id}/skip"): {
            "topic": TOPIC,
            "partition": 0,
            "offset": 0,
            "why": "a test",
        },
        ("POST", "/subscriptions/{id}/dead/requeue"): {"all": True},
        ("POST", "/subscriptions/{id}/dead/drop"): {"all": True},
        ("POST", "/broker/subscription"): {"id": name, "group": {"id": group}, **original},
        ("POST", "/broker/unsubscribe"): {"id": name, "group": {"id": group}, **original},
    }.get((method, path))


def expected(token: str | None, route: tuple[str, str], id_: str) -> set[int]:
    """Return the statuses that are right."""
    right, _, seen = (token or "").partition("-")
    is_operator, need = right == "ops", NEEDS[route]
    if token in {None, "unknown"}:
        return {401}
    if not is_operator and right != need:
        return {403}
    sees = is_operator or seen == "all" or id_ != FOREIGN
    if "{id}" in route[1] or route[1] == "/broker/unsubscribe":
        is_there = sees and id_ != MISSING and "{event" not in route[1]
        # The topic has nothing that could be stepped over.
        there = 422 if route[1].endswith("/skip") else 200
        return {there} if is_there else {404}
    if need == "write":
        return {200, 201, 409} if sees else {403}
    return {200}


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_each_route_by_each_kind_of_token(api: Api, route: tuple[str, str]) -> None:
    method, path = route
    for token, id_ in product(KINDS, (OWN, FOREIGN, MISSING)):
        api.has_two()
        before = api.rows()
        got = api(token, method, filled(path, id_), body(method, path, id_))
        case = (token, id_, got)
        assert got.status in expected(token, route, id_), case
        if got.status >= 400:
            assert api.rows() == before, case
        if path == "/audit":
            continue  # which has what each has sent; see `test_push_audit`
        if token is None or not token.endswith(("ops", "all")):
            # It tells no more of what belongs to others than of what there is not.
            assert "till" not in json.dumps(got.body).replace(id_, ""), case


def test_a_foreign_subscription_is_as_one_that_is_missing(api: Api) -> None:
    for method, path in ROUTES:
        if "{id}" in path:
            foreign, missing = (
                api("shop", method, filled(path, id_), body(method, path, id_))
                for id_ in (FOREIGN, MISSING)
            )
            told = json.dumps(missing.body).replace(MISSING, FOREIGN)
            assert (foreign.status, json.dumps(foreign.body)) == (missing.status, told)
    wanted = described("till.new", group=None)
    ids = [FOREIGN, "till.new"]
    taken, free = (api("shop", "POST", "/subscriptions", {**wanted, "id": id_}) for id_ in ids)
    assert (taken.status, free.status) == (403, 403)
    assert json.dumps(taken.body).replace(FOREIGN, "till.new") == json.dumps(free.body)


def test_a_token_uses_what_its_scope_has_and_no_more(api: Api) -> None:
    with_all = described(
        "shop.b",
        group="shop-b",
        dead_letter_topic="shop.dead",
        endpoint={"url": "https://hooks.example/shop/b", "headers": {"X": "env:SHOP_B"}},
        start={"offsets": {TOPIC: {"0": 0}}},
    )
    made = api("shop", "POST", "/subscriptions", with_all)
    assert (made.status, made.body["owner"]) == (201, "shop")
    assert api("shop", "POST", "/subscriptions", with_all).status == 200
    assert api("till", "GET", "/subscriptions/shop.b").status == 404
    group = f"billing-{uuid4().hex}"
    ours = {"bootstrap.servers": api.kafka, "group.id": group}
    consumer = Consumer(ours)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 10)], asynchronous=False)
    consumer.close()
    before = api.rows()
    at_three = {"offsets": {TOPIC: {"0": 3}}}
    endpoint = {"url": "https://hooks.example/shop"}
    beyond: dict[str, dict[str, Any]] = {
        "group": {"group": group, "start": at_three},
        "dead_letter_topic": {"dead_letter_topic": "payments"},
        "topics.0": {"topics": ["payments"]},
        "partitions.0.topic": {"topics": [], "partitions": [{"topic": "pay", "numbers": [0]}]},
        "pattern": {"topics": [], "pattern": "[a-z]+ments"},
        "endpoint.headers.X-Loot": {"endpoint": {**endpoint, "headers": {"X-Loot": "env:MAIL"}}},
        "signing.secrets.0": {"signing": {"secrets": ["file:till"]}},
        "endpoint.url": {"endpoint": {"url": "https://hooks.example/till"}},
        "broker": {"broker": "east"},
        "id": {"id": "thief"},
    }
    for path, changes in beyond.items():
        wanted = {**with_all, "id": "shop.c", **changes}
        sent = [("POST", "/subscriptions", wanted)]
        if path != "id":
            sent.append(("PUT", "/subscriptions/shop.b", {**with_all, **changes}))
        for method, route, asked in sent:
            got = api("shop", method, route, asked)
            assert (got.status, [each["path"] for each in got.body["problems"]]) == (403, [path])
    original = body("POST", "/broker/subscription", "shop.d_g")
    assert isinstance(original, dict)
    method_ = {"uri": "https://hooks.example/", "additionalHeaders": {"X": "env:MAIL"}}
    got = api("shop", "POST", "/broker/subscription", original | {"subscriptionMethod": method_})
    assert [each["path"] for each in got.body["problems"]] == [
        "group",
        "endpoint.headers.X",
        "endpoint.url",
    ]
    assert api.rows() == before
    assert committed(api.kafka, TOPIC, group=group)[0] == 10


def test_a_subscription_that_is_refused_moves_no_group(api: Api) -> None:
    for number in range(3):
        wanted = described(f"few.{number}", group=None)
        assert api("few", "POST", "/subscriptions", wanted).status == 201
    group = f"shop-{uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": api.kafka, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 10)], asynchronous=False)
    consumer.close()
    wanted = described("few.x", group=group, start={"offsets": {TOPIC: {"0": 3}}})
    refused = api("few", "POST", "/subscriptions", wanted)
    assert "max_subscriptions" in refused.body["error"]
    assert committed(api.kafka, TOPIC, group=group)[0] == 10


def test_an_owner_has_no_more_subscriptions_than_it_may_however_many_ask_at_once(
    api: Api,
) -> None:
    def make(number: int) -> int:
        return api("few", "POST", "/subscriptions", described(f"few.{number}", group=None)).status

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(make, range(6))) == [201] * 3 + [403] * 3
    (first, *_) = api("few", "GET", "/subscriptions").body
    assert api("few", "POST", "/subscriptions", described(first["id"], group=None)).status == 200
    refused = api("few", "POST", "/subscriptions", described("few.x", group=None))
    assert "api.tokens.few.max_subscriptions allows more" in refused.body["error"]
    assert api("few", "DELETE", f"/subscriptions/{first['id']}").status == 200
    assert api("few", "POST", "/subscriptions", described("few.x", group=None)).status == 201


@pytest.mark.parametrize(
    "name",
    [
        "__consumer_offsets",
        "__transaction_state",
        "dovecote.progress.shop",
        "dovecote.markers.x",
        "dovecote.push.till.dead",
        "dovecote.push.till.requeued",
    ],
)
def test_nobody_subscribes_to_topics_of_kafka_and_dovecote(api: Api, name: str) -> None:
    for source in (
        {"topics": [name]},
        {"topics": [], "partitions": [{"topic": name, "numbers": [0]}]},
    ):
        got = api("ops", "POST", "/subscriptions", described("x", group=None, **source))
        assert got.status == 422
        assert name in got.body["error"]


def test_what_was_made_for_an_owner_or_before_there_were_owners_is_its_own(api: Api) -> None:
    made = api("ops", "POST", "/subscriptions", described("shop.c", group=None))
    assert made.body["owner"] == "shop"
    assert api("ops", "POST", "/subscriptions", described("x", group=None)).body["owner"] == "ops"
    with psycopg.connect(api.dsn) as conn:
        conn.execute("UPDATE push.subscriptions SET owner = ''")
    seen = {
        token: [each["id"] for each in api(token, "GET", "/subscriptions").body]
        for token in ("shop", "till", "ops")
    }
    every = sorted([OWN, "shop.c", FOREIGN, "x"])
    assert seen == {"shop": [OWN, "shop.c"], "till": [FOREIGN], "ops": every}


def test_a_subscription_of_before_that_reads_an_internal_topic_can_be_deleted(api: Api) -> None:
    with psycopg.connect(api.dsn) as conn:
        spec = json.dumps(described(OWN, topics=["__consumer_offsets"]))
        conn.execute("UPDATE push.subscriptions SET spec = %s WHERE id = %s", [spec, OWN])
    assert api("shop", "GET", f"/subscriptions/{OWN}").status == 200
    assert api("shop", "DELETE", f"/subscriptions/{OWN}").status == 200


def test_metrics_name_all_subscriptions_and_so_need_a_token_that_sees_them(
    api: Api, stack: Servers, database: str
) -> None:
    found = {token: api(token, "GET", "/metrics").status for token in (None, "shop", *tokens())}
    may = {"ops", "read-all"}
    assert found == {
        token: 200 if token in may else 401 if token is None else 403 for token in found
    }
    for path in ("/", "/page.js", "/openapi.json", "/healthz"):
        assert api(None, "GET", path).status == 200
    seeing = {"tokens": {"ops": hashed("ops")}}
    settings = push_settings(database, stack.kafka.bootstrap, api=seeing)
    with installed(database), idle(settings) as (running, _):
        assert Client(running.at.port)("GET", "/metrics").status == 200


def test_the_broker_that_a_token_may_not_use_is_not_named(api: Api) -> None:
    for token, words in (("ops", "but default"), ("read-all", "no right to write")):
        got = api(token, "POST", "/subscriptions", described("x", group=None, broker="none"))
        assert words in got.body["error"]
    got = api("shop", "POST", "/subscriptions", described("shop.x", group=None, broker="none"))
    assert "default" not in got.body["error"].replace("api.tokens", "")
