"""The page of push in a real browser: what it shows, what it escapes, what its buttons do."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dedup.kafka.letters import Letters
from dedup.retries import copies
from dedup.rules.record import Record
from dovecote.process.http.server import App
from dovecote.push.api.access import hashed
from dovecote.push.rules.sending.ports import AttemptReport, DeliveryReport, Outcome
from tests.support.browser import Browser, browser
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import LEAST, Client, Idle, idle, installed, push_settings
from tests.support.waiting import consume, patient, until

SCRIPT = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


def attempts(engine: Idle) -> None:
    answers: list[tuple[int | None, Outcome, str]] = [
        *((200, "delivered", '{"ok": true}') for _ in range(17)),
        (503, "retry", SCRIPT),
        (None, "retry", "connection refused"),
        (404, "dead", "no such hook"),
    ]
    for number, (status, outcome, detail) in enumerate(answers):
        engine.book.attempted(
            AttemptReport(
                subscription="slack",
                event_id=f"0190b3f2-6c1e-7a55-8d0e-{number:012x}",
                topic="flights",
                partition=number % 4,
                offset=1000 + number,
                key="N14228",
                number=1 if status == 200 else 2,
                at=1_790_000_000 + number,
                seconds=0.004 + number / 1000,
                status=status,
                outcome=outcome,
                detail=detail,
            )
        )


def in_the_way(engine: Idle) -> None:
    engine.says = {
        "search-index": DeliveryReport(
            running=True, circuit="half_open", trouble="the circuit is open: 503"
        ),
        "crm": DeliveryReport(running=True, trouble="topic 'flights' cannot be read"),
    }


@pytest.fixture
def requeued(stack: Servers) -> Iterator[str]:
    """The topic of dead letters that come again, which the engine would create."""
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    name = "dovecote.push.slack.requeued"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(patient(20))
    yield name
    admin.delete_topics([name])[name].result(patient(20))


def bury(bootstrap: str, topic: str, number: int) -> None:
    """Write dead letters, with a reason that is no markup."""
    with Letters({"bootstrap.servers": bootstrap}) as letters:
        for each in range(number):
            headers = [("ce_id", f"dead-{each} {SCRIPT}".encode())]
            record = Record("flights", 0, each, 1_790_000_000_000, b"N14228", b"{}", headers)
            letters.send(
                topic, copies.dead(record, record.identity, now=1_790_000_000_000, error=SCRIPT)
            )


def test_what_the_page_shows_is_what_the_api_says_and_its_buttons_do_what_they_say(
    database: str, stack: Servers, window: Browser, topic: MakeTopic, requeued: str
) -> None:
    dead = topic(1)
    bury(stack.kafka.bootstrap, dead, 4)
    api = {"tokens": {"ops": hashed("letmein")}}
    with (
        installed(database) as dsn,
        idle(push_settings(dsn, stack.kafka.bootstrap, api=api)) as (found, engine),
    ):
        client = Client(found.at.port, "letmein")
        for id_, url in (
            ("slack", "https://hooks.slack.example/services/T0/B0/x"),
            ("billing", "https://billing.example/events"),
            ("search-index", "https://search.example/flights"),
            ("crm", "https://crm.example/flights"),
        ):
            made = {**LEAST, "id": id_, "endpoint": {"url": url}, "dead_letter_topic": dead}
            assert client("POST", "/subscriptions", made).status == 201
        client("POST", "/subscriptions/billing/pause")
        attempts(engine)
        in_the_way(engine)
        window.open(found.at.url)
        until(lambda: "unknown token" in window.text("#state"), within=10, what="asks for a token")
        assert "slack" not in window.text()
        window.type("#token", "letmein")
        until(lambda: "billing" in window.text("#subscriptions"), within=10, what="subscriptions")
        until(lambda: "85" in window.text("#tiles"), within=10, what="success ratio of 17 in 20")
        window.click("tr[data-id=slack] .name")
        until(lambda: "connection refused" in window.text("#attempts"), within=10, what="attempts")
        assert SCRIPT in window.text("#attempts")
        # A state of the API, and why it is so.
        shown = "return document.querySelector('tr[data-id=search-index] .chip').title"
        assert window.text("tr[data-id=search-index] .chip") == "failing"
        assert "the circuit is open: 503" in window.run(shown)
        health = client("GET", "/subscriptions/crm").body["health"]
        assert window.text("tr[data-id=crm] .chip") == health["state"] != "working"
        assert window.run("return document.title") == "Dovecote push"
        assert window.run("return document.querySelectorAll('#attempts img').length") == 0
        until(lambda: SCRIPT in window.text("#dead"), within=20, what="dead letters")
        pictures(window)
        assert window.run("return document.querySelectorAll('#dead img').length") == 0
        nothing_that_gets_in_runs(window)
        window.click("#dead tbody tr:nth-child(1) button:nth-child(1)")
        until(lambda: "(3)" in window.text("#dead-title"), within=20, what="one is requeued")
        window.click("#dead tbody tr:nth-child(1) button:nth-child(2)")
        until(lambda: "(2)" in window.text("#dead-title"), within=20, what="one is dropped")
        window.click("#requeue-all")
        until(lambda: "There are none." in window.text("#dead"), within=20, what="none is left")
        again = [record.key() for record in consume(stack.kafka.bootstrap, requeued)]
        assert again == [b"N14228"] * 3
        window.click("tr[data-id=slack] .actions button")
        until(lambda: "paused" in window.text("tr[data-id=slack]"), within=10, what="paused")
        assert client("GET", "/subscriptions/slack").body["status"]["state"] == "paused"
        window.click("tr[data-id=slack] .actions button")
        until(lambda: "paused" not in window.text("tr[data-id=slack]"), within=10, what="resumed")
        window.click("#close")
        until(
            lambda: window.run("return document.getElementById('detail').hidden"),
            within=5,
            what="closed",
        )


def test_a_page_without_its_script_says_so_and_loads_again(
    database: str, stack: Servers, window: Browser
) -> None:
    lost = ["/page.js"]

    def around(app: App) -> App:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"] in lost:
                lost.remove(scope["path"])
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
            else:
                await app(scope, receive, send)

        return answer

    with (
        installed(database) as dsn,
        idle(push_settings(dsn, stack.kafka.bootstrap), around=around) as (found, _),
    ):
        window.open(found.at.url)
        until(lambda: "did not give a file" in window.text("#error"), within=10, what="it says so")
        assert window.text("#state") == "not connected"
        until(lambda: "token" in window.text("#state"), within=20, what="it is whole")


def nothing_that_gets_in_runs(window: Browser) -> None:
    """Put markup into the page as a fault of ours might: the browser refuses to run it."""
    for markup in (
        SCRIPT,
        "<svg onload=\"document.title='taken'\"></svg>",
        "<iframe srcdoc=\"<script>parent.document.title='taken'</script>\"></iframe>",
    ):
        window.run("document.getElementById('state').innerHTML = arguments[0]", markup)
    window.run(
        "const made = document.createElement('script');"
        "made.textContent = \"document.title='taken'\"; document.body.append(made)"
    )
    refused = """
        const refused = [];
        document.addEventListener(
            'securitypolicyviolation', event => refused.push(event.effectiveDirective)
        );
        const elsewhere = document.createElement('script');
        elsewhere.src = 'http://127.0.0.2:1/taken.js';
        document.body.append(elsewhere);
        fetch('http://127.0.0.2:1/').catch(() => 0);
        window.refused = refused;
    """
    window.run(refused)
    wanted = {"script-src-elem", "connect-src"}
    until(
        lambda: {*window.run("return window.refused")} >= wanted,
        within=10,
        what="scripts and requests elsewhere are refused",
    )
    assert window.run("return document.title") == "Dovecote push"


def pictures(window: Browser) -> None:
    """Leave pictures of the page in DOVECOTE_PICTURES, for somebody to look at."""
    folder = os.environ.get("DOVECOTE_PICTURES")
    if folder is not None:
        window.screenshot(Path(folder) / "push-light.png")
        window.dark()
        window.screenshot(Path(folder) / "push-dark.png")
