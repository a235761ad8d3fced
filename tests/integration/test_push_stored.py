"""Subscriptions that are stored and cannot be delivered stop nobody, and can be deleted."""

from typing import Any

import psycopg
import typer
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from dovecote.cli.push.subscriptions import list_
from tests.support.fix_stack import Servers
from tests.support.idle_push import LEAST, TOKEN, Client, idle, installed, push_settings
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
            assert client("GET", "/readyz").status == 200
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
