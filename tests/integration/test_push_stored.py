"""Subscriptions that are stored and cannot be delivered stop nobody, and can be deleted."""

from typing import Any

import psycopg
import typer
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from dovecote.cli.push.subscriptions import list_
from tests.support.fix_stack import Servers
from tests.support.idle_push import LEAST, TOKEN, Client, attempt, idle, installed, push_settings
from tests.support.waiting import until

push_list = typer.Typer()
push_list.command()(list_)

ENDPOINT = LEAST["endpoint"]
BAD: dict[str, Any] = {
    "freezing": {
        "id": "freezing",
        "pattern": "((x{0,120})*){0,120}",
        "endpoint": ENDPOINT,
    },
    "open": {"id": "open", "pattern": "(", "endpoint": ENDPOINT},
    "number": 5,
    "list": [LEAST],
    "nothing": None,
    "strange": {"id": 7, "group": ["g"], "topics": {"a": 1}, "endpoint": "x", "broker": []},
    "sealed": {**LEAST, "id": "sealed", "signing": {"secrets": ["sealed:no token"]}},
    "deep": {**LEAST, "id": "deep", "topics": [[[[[[[["a"]]]]]]]]},
}
# Python reads JSON of up to about 1,000 levels, and numbers of up to 4,300 digits.
WORSE = {"deep-600": "[" * 600 + "]" * 600, "deep-5000": "[" * 5_000 + "]" * 5_000}
WORSE |= {"long": "9" * 5_000}


def test_what_is_stored_and_bad_stops_no_start_is_shown_and_can_be_deleted(
    database: str, stack: Servers
) -> None:
    with installed(database) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        for id_, spec in {**BAD, "slack": LEAST, "namesake": LEAST}.items():
            conn.execute(
                "INSERT INTO push.subscriptions (id, spec) VALUES (%s, %s)", [id_, Jsonb(spec)]
            )
        for id_, topics in WORSE.items():
            spec = f'{{"id": "{id_}", "topics": {topics}}}'
            conn.execute(
                "INSERT INTO push.subscriptions (id, spec) VALUES (%s, %s::jsonb)", [id_, spec]
            )
        with idle(push_settings(dsn, stack.kafka.bootstrap)) as (running, engine):
            client = Client(running.at.port)
            until(lambda: "slack" in engine.work, within=5, what="the good one is delivered")
            until(
                lambda: all(
                    client("GET", f"/subscriptions/{id_}").body["delivery"]["trouble"]
                    for id_ in (*BAD, *WORSE)
                ),
                within=5,
                what="the trouble of each is shown",
            )
            assert client("POST", "/subscriptions", BAD["freezing"]).status == 422
            assert engine.work.keys() == {"slack", "namesake"}
            until(lambda: client("GET", "/readyz").status == 200, within=10, what="it is ready")
            assert client("GET", "/broker/subscription").status == 200
            assert {each["id"] for each in client("GET", "/subscriptions").body} == {
                *BAD,
                *WORSE,
                "slack",
                "namesake",
            }
            api = f"http://127.0.0.1:{running.at.port}"
            listed = CliRunner().invoke(
                push_list, ["--api", api], env={"DOVECOTE_API_TOKEN": TOKEN}
            )
            assert listed.exit_code == 0, listed.output
            assert [line.split()[0] for line in listed.output.splitlines()] == sorted(
                [*BAD, *WORSE, "slack", "namesake"]
            )
            for id_ in (*BAD, *WORSE):
                assert client("POST", f"/subscriptions/{id_}/pause").status == 200
                path, start = f"/subscriptions/{id_}/replay", {"start": "earliest"}
                assert client("POST", path, start).status == 422
                assert client("DELETE", f"/subscriptions/{id_}").status == 200
            assert client("POST", "/subscriptions/slack/replay", start).status != 503
            left = [each["id"] for each in client("GET", "/subscriptions").body]
            assert left == ["namesake", "slack"]


def test_a_table_that_is_missing_for_a_while_loses_no_attempt_and_no_410(
    database: str, stack: Servers
) -> None:
    # As during a restore: the thread that writes both ended at the first such error, for good.
    with (
        installed(database) as dsn,
        psycopg.connect(dsn, autocommit=True) as conn,
        idle(push_settings(dsn, stack.kafka.bootstrap)) as (running, engine),
    ):
        client = Client(running.at.port)
        assert client("POST", "/subscriptions", LEAST).status == 201
        conn.execute("ALTER TABLE push.attempts RENAME TO away")
        engine.book.attempted(attempt("slack", 1))

        def is_said() -> bool:
            ready = client("GET", "/readyz")
            return ready.status == 200 and "attempts are not recorded" in ready.body["reason"]

        until(is_said, within=10, what="it is ready, and says so")
        conn.execute("ALTER TABLE push.away RENAME TO attempts")
        engine.book.disable("slack", ENDPOINT["url"], "it answered 410")
        until(
            lambda: client("GET", "/subscriptions/slack").body["status"]["state"] == "disabled",
            within=10,
            what="disabled",
        )
        until(
            lambda: len(client("GET", "/subscriptions/slack/attempts").body) == 1,
            within=10,
            what="the attempt is recorded",
        )
        until(
            lambda: "not recorded" not in client("GET", "/readyz").body["reason"],
            within=10,
            what="it is well again",
        )


def test_a_late_410_of_an_endpoint_that_was_changed_disables_nothing(
    database: str, stack: Servers
) -> None:
    with (
        installed(database) as dsn,
        idle(push_settings(dsn, stack.kafka.bootstrap)) as (running, engine),
    ):
        client = Client(running.at.port)
        for id_ in ("changed", "same"):
            assert client("POST", "/subscriptions", {**LEAST, "id": id_}).status == 201
        new = {"set": {"endpoint.url": "https://hooks.example/new"}}
        assert client("PATCH", "/subscriptions/changed", new).status == 200
        for id_ in ("changed", "same"):
            engine.book.disable(id_, ENDPOINT["url"], "it answered 410")

        def state(id_: str) -> str:
            return str(client("GET", f"/subscriptions/{id_}").body["status"]["state"])

        until(lambda: state("same") == "disabled", within=10, what="disabled")
        assert state("changed") == "active"
