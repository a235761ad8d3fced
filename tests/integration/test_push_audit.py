"""The audit log has who did what, from where and with what result, and is bounded."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dovecote.push.api.access import hashed
from dovecote.push.rules.access.scope import RIGHTS
from dovecote.push.store.audit import Audit, Deed, Entry
from dovecote.push.store.tables import Tables
from tests.support.fix_stack import Servers
from tests.support.idle_push import LEAST, Client, idle, installed, push_settings
from tests.support.waiting import until

HIDDEN = "s3-never-shown"
TOKENS = {
    "ops": hashed("ops"),
    "shop": {
        "sha256": hashed("shop"),
        "rights": RIGHTS,
        "topics": ["*"],
        "endpoints": ["*"],
    },
    "look": {"sha256": hashed("look")},
}


@pytest.fixture
def tables(database: str) -> Iterator[str]:
    with installed(database) as dsn:
        yield dsn


@pytest.fixture
def port(tables: str, stack: Servers) -> Iterator[int]:
    settings = push_settings(tables, stack.kafka.bootstrap, api={"tokens": TOKENS})
    with idle(settings) as (found, _):
        yield found.at.port


def short(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what was done, oldest first."""
    return [
        (each["actor"], each["method"], each["path"], each["status"]) for each in reversed(entries)
    ]


def test_what_was_done_and_what_was_refused_is_there_and_nothing_that_was_only_read(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dovecote.push.audit")
    ops, shop, look, stranger = (Client(port, each) for each in ("ops", "shop", "look", "x"))
    headers = {"X-Key": HIDDEN}
    mine = {**LEAST, "id": "shop.a", "endpoint": {**LEAST["endpoint"], "headers": headers}}
    assert shop("POST", "/subscriptions", mine).status == 201
    shop("GET", "/subscriptions")
    ops("GET", "/subscriptions/shop.a/attempts")
    ops("POST", "/subscriptions/shop.a/pause", X_Forwarded_For="203.0.113.9")
    ops("POST", "/subscriptions", LEAST)
    shop("GET", "/subscriptions/slack")
    shop("DELETE", "/subscriptions/slack")
    look("PUT", "/subscriptions/shop.a", mine)
    shop("GET", "/subscriptions/shop.a/dead/none")
    shop("POST", "/subscriptions", {"id": "shop.b"})
    ops("POST", "/nowhere", "x" * 300_000)
    stranger("DELETE", "/subscriptions/shop.a")
    stranger("GET", "/healthz")
    told = ops("GET", "/audit").body
    assert short([each for each in told if each["actor"]]) == [
        ("shop", "POST", "/subscriptions", 201),
        ("ops", "POST", "/subscriptions/shop.a/pause", 200),
        ("ops", "POST", "/subscriptions", 201),
        ("shop", "GET", "/subscriptions/slack", 404),
        ("shop", "DELETE", "/subscriptions/slack", 404),
        ("look", "PUT", "/subscriptions/shop.a", 403),
        ("shop", "GET", "/subscriptions/shop.a/dead/none", 404),
        ("shop", "POST", "/subscriptions", 422),
        ("ops", "POST", "/nowhere", 413),
    ]
    (unknown,) = (each for each in told if each["actor"] is None)
    assert (unknown["method"], unknown["status"], unknown["times"]) == ("DELETE", 401, 1)
    first, paused = told[-1], told[-2]
    assert first["subscription"] == "shop.a"
    assert first["detail"] == "to https://hooks.example/x, from flights, as dovecote.push.shop.a"
    assert (paused["address"], paused["forwarded"]) == ("127.0.0.1", "203.0.113.9")
    assert [each["refused"] for each in told if each["status"] < 400] == [False] * 3
    assert all(each["refused"] and each["error"] for each in told if each["status"] >= 400)
    assert [each["path"] for each in ops("GET", "/audit?subscription=slack&limit=2").body] == [
        "/subscriptions/slack",
        "/subscriptions/slack",
    ]
    assert HIDDEN not in json.dumps(told) + caplog.text
    assert "shop from 127.0.0.1 POST /subscriptions: 201 to https://hooks" in caplog.text
    assert "look from 127.0.0.1 PUT /subscriptions/shop.a: 403 token 'look' has no" in caplog.text
    assert look("GET", "/audit").status == 403


def test_a_token_of_its_own_sees_what_it_did_and_what_was_done_to_its_own(port: int) -> None:
    ops, shop = Client(port, "ops"), Client(port, "shop")
    shop("POST", "/subscriptions", {**LEAST, "id": "shop.a"})
    ops("POST", "/subscriptions", LEAST)
    ops("POST", "/subscriptions/shop.a/pause", X_Forwarded_For="203.0.113.9")
    shop("DELETE", "/subscriptions/slack")
    Client(port, "look")("DELETE", "/subscriptions/shop.a")
    told = shop("GET", "/audit").body
    assert short(told) == [
        ("shop", "POST", "/subscriptions", 201),
        ("ops", "POST", "/subscriptions/shop.a/pause", 200),
        ("shop", "DELETE", "/subscriptions/slack", 404),
    ]
    # From where others came is for those to know who look after all.
    assert [each["address"] for each in told] == ["127.0.0.1", None, "127.0.0.1"]
    assert told[1]["forwarded"] is None
    assert [each["actor"] for each in ops("GET", "/audit").body].count("look") == 1


def test_without_tokens_it_has_who_was_let_in_and_who_was_not(
    tables: str, stack: Servers, tmp_path: Path
) -> None:
    settings = push_settings(tables, stack.kafka.bootstrap, api={})
    with idle(settings, XDG_STATE_HOME=str(tmp_path)) as (found, _):
        token = (tmp_path / "dovecote" / "push-token").read_text().strip()
        client = Client(found.at.port, token)
        client("POST", "/subscriptions", LEAST)
        Client(found.at.port, None)("POST", "/subscriptions", LEAST)
        told = client("GET", "/audit").body
    assert sorted((each["actor"] or "", each["status"]) for each in told) == [
        ("", 401),
        ("own", 201),
    ]


def entry(actor: str, number: int, *, status: int = 200, address: str = "10.0.0.1") -> Entry:
    deed = Deed(
        method="POST",
        path=f"/subscriptions/{number}\0\udcff" + "x" * 2_000,
        subscription=str(number),
        status=status,
        error="no" if status >= 400 else "",
        detail="",
        address=address,
        forwarded="",
    )
    return Entry(datetime.now(UTC), actor, "", deed)


def test_it_is_bounded_and_nobody_displaces_an_entry_by_what_is_refused(
    tables: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dovecote.push.audit")
    found = Tables(tables)
    audit = Audit(found, most=10)
    audit.start()
    try:
        for number in range(25):
            audit.note(entry("shop", number))
        for number in range(3_000):
            audit.note(entry("shop", number, status=403))
            audit.note(entry("", number, status=401))
            audit.note(entry("", number, status=401, address=f"2001:db8::{number:x}"))
        told = audit.entries(limit=10_000, subscription=None, actor=None, owner=None)
    finally:
        audit.stop()
    kept = {
        (actor, refused): [
            int(each["subscription"])
            for each in told
            if (each["actor"], each["refused"]) == (actor, refused)
        ]
        for actor, refused in (("shop", False), ("shop", True), (None, True))
    }
    assert kept["shop", False] == list(range(24, 14, -1))
    assert kept["shop", True] == list(range(2_999, 2_989, -1))
    assert len(kept[None, True]) == 10
    with psycopg.connect(tables) as conn:
        row = conn.execute("SELECT max(pg_column_size(told)), count(*) FROM push.audit").fetchone()
    assert row is not None
    assert row[0] < 2_000
    assert row[1] == 30
    # The log has all that was done, and of what was refused a few lines a second.
    assert sum(": 200" in each for each in caplog.messages) == 25
    assert len(caplog.messages) < 1_000
    found.close()


def test_strangers_are_summed_up(tables: str) -> None:
    found = Tables(tables)
    audit = Audit(found, most=1_000)
    for number in range(1_000):
        audit.note(entry("", number, status=401))
        audit.note(entry("", number, status=401, address=f"2001:db8::{number:x}"))
    told = audit.entries(limit=10_000, subscription=None, actor=None, owner=None)
    assert sum(each["times"] for each in told) == 2_000
    assert len(told) == 101
    assert max(told, key=lambda each: each["times"])["address"] == "10.0.0.1"
    assert {each["address"] for each in told} > {"several addresses", "2001:db8::1"}
    found.close()


def test_while_the_database_is_away_entries_wait_and_the_log_says_so(
    tables: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = Tables(make_conninfo(tables, options="-c default_transaction_read_only=on"))
    away = Audit(found, most=10)
    caplog.set_level(logging.INFO, "dovecote.push.audit")
    away.start()
    away.note(entry("shop", 1))
    until(lambda: "not written for now" in caplog.text, within=10, what="it is said")
    assert "shop from 10.0.0.1 POST /subscriptions/1" in caplog.text
    away._tables = Tables(tables)  # it is back
    away.stop()
    told = away.entries(limit=10, subscription=None, actor=None, owner=None)
    assert [each["subscription"] for each in told] == ["1"]
    away._tables.close()
    found.close()
