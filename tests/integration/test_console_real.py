"""A browser shows the troubles of real parts on the console's first screen, until they end."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovecote.devstack import Stack
from outbox import Event
from tests.support.browser import Browser
from tests.support.console_parts import Fleet, ended, fleet
from tests.support.delivering import Endpoint, Reply
from tests.support.fix_console import sees, window
from tests.support.relaying import RelayProcess, commit, event
from tests.support.topics import alter_topic, delete_topic, make_topic
from tests.support.waiting import patient, until

__all__ = ["window"]

pytestmark = pytest.mark.timeout(900)

SEEN_WITHIN = 5.0
"""The seconds that docs/console.md promises, from when a trouble can be known."""
OPERATOR = "of-an-operator"
ON_SCREEN = """
return [...document.querySelectorAll('.trouble')]
  .filter(each => each.getBoundingClientRect().bottom <= innerHeight && scrollY === 0)
  .map(each => ['.part', '.what', '.todo'].map(css => each.querySelector(css).innerText))
"""
STATES = """
return [...document.querySelectorAll('table tbody tr')]
  .map(each => [each.cells[0].innerText, each.cells[1].innerText])
"""


class Real(NamedTuple):
    """Parts that run, and the page of the console that watches them."""

    stack: Stack
    parts: Fleet
    relay: RelayProcess
    consumer: list[subprocess.Popen[bytes]]
    endpoint: Endpoint
    window: Browser
    url: str

    def on_screen(self) -> list[tuple[str, str, str]]:
        """Return part, title and advice of each trouble that is seen without scrolling."""
        return [(each[0], each[1], each[2]) for each in self.window.run(ON_SCREEN)]

    def appears(self, part: str, title: str, todo: str, began: Callable[[], float]) -> None:
        """Wait until a trouble is on the screen, and check how late it is."""

        def shown() -> bool:
            return any(
                (part, True, True) == (each[0], title in each[1], todo in each[2])
                for each in self.on_screen()
            )

        try:
            until(shown, within=SEEN_WITHIN * 6, what=f"{part}: {title}")
        except AssertionError as error:
            msg = f"{error}; on the screen: {self.on_screen()}"
            raise AssertionError(msg) from error
        took = time.monotonic() - began()
        told(f"{part}: {title!r} appears after {took:.1f} s")
        assert took <= patient(SEEN_WITHIN)

    def alone(self, part: str) -> None:
        """Wait until the screen has one trouble, though several parts see it."""
        until(
            lambda: [each[0] for each in self.on_screen()] == [part],
            within=SEEN_WITHIN,
            what=f"{part} alone",
        )

    def is_gone(self, part: str, *, within: float = 30) -> None:
        """Wait until the screen has no trouble of a part any more."""
        began = time.monotonic()
        try:
            until(
                lambda: (
                    part not in [each[0] for each in self.on_screen()] and self.window.text("h1")
                ),
                within=within,
                what=f"{part} has no trouble",
            )
        except AssertionError as error:
            msg = f"{error}; on the screen: {self.on_screen()}"
            raise AssertionError(msg) from error
        told(f"{part}: gone after {time.monotonic() - began:.1f} s")

    def is_well(self, *, within: float = 60) -> None:
        """Wait until the page says that there is no trouble."""
        try:
            until(
                lambda: self.window.text("h1") == "No troubles",
                within=within,
                what="no troubles on the page",
            )
        except AssertionError as error:
            msg = f"{error}; on the screen: {self.on_screen()}, {self.window.run(STATES)}"
            raise AssertionError(msg) from error

    def home(self) -> None:
        self.window.open(self.url + "/#/")
        sees(self.window, "as of", "#seen")


def told(said: str) -> None:
    """Show a measured time; `pytest -s` prints it."""
    print(said)  # noqa: T201  # as it says


@pytest.fixture(scope="module")
def real(
    module_stack: Stack, tmp_path_factory: pytest.TempPathFactory, window: Browser
) -> Iterator[Real]:
    bootstrap = module_stack.kafka.bootstrap
    make_topic(bootstrap, "orders", max_message_bytes="3000")
    make_topic(bootstrap, "refunds")
    folder = tmp_path_factory.mktemp("real")
    with (
        Endpoint(lambda _: Reply(204)) as endpoint,
        fleet(folder, module_stack.postgres.dsn, bootstrap, "orders", "refunds") as parts,
    ):
        relay, consumer, _ = parts.relay(), parts.consumer(), parts.pushing()
        wanted = {
            "id": "hook",
            "topics": ["orders"],
            "endpoint": {"url": endpoint.url},
            "retry": {"type": "fixed", "delay": "300ms", "resends": 1_000},
        }
        assert parts.push("POST", "/subscriptions", wanted).status == 201
        commit(parts.dsn, *(event("orders", number) for number in range(5)))
        url = parts.console(relay, OPERATOR)
        window.open(url + "/#/")
        sees(window, "This console wants a token", "#token-dialog")
        window.type("#token", OPERATOR)
        window.click("#token-use")
        sees(window, "may write", "#who")
        found = Real(module_stack, parts, relay, [consumer], endpoint, window, url)
        found.is_well()
        yield found


@pytest.fixture(autouse=True)
def well(real: Real) -> None:
    """Begin each test on the first view, without troubles."""
    real.home()
    real.is_well()


def now() -> Callable[[], float]:
    """Return a clock that stands still."""
    at = time.monotonic()
    return lambda: at


def test_an_endpoint_that_answers_401_is_shown_until_it_is_well(real: Real) -> None:
    begins: dict[str, float] = {}

    def refuses(_: Any) -> Reply:
        begins.setdefault("at", time.monotonic())
        return Reply(401)

    real.endpoint.answer = refuses
    commit(real.parts.dsn, event("orders", 100))
    real.appears(
        "push/main/hook", "answers 401", "correct the secret", lambda: begins.get("at", 0.0)
    )
    real.endpoint.answer = lambda _: Reply(204)
    real.is_gone("push/main/hook", within=90)


def test_a_missing_topic_is_shown_until_it_is_made(real: Real) -> None:
    delete_topic(real.parts.bootstrap, "refunds")
    began = now()
    real.appears("topic/refunds", "does not exist", "dovecote topic create refunds", began)
    real.alone("topic/refunds")
    make_topic(real.parts.bootstrap, "refunds")
    real.is_gone("topic/refunds")
    real.is_well()
    commit(real.parts.dsn, event("refunds", 1))
    real.is_well()


def test_a_parked_event_is_shown_until_it_is_requeued_with_the_button(real: Real) -> None:
    large = Event(topic="orders", type="Large", key="bad", value=" " * 5_000)
    commit(real.parts.dsn, large)
    real.relay.until_logged("parked event")
    began = now()
    real.appears("outbox/shop", "1 event is parked", "requeue or drop", began)
    real.alone("outbox/shop")
    alter_topic(real.parts.bootstrap, "orders", max_message_bytes="100000")
    page = real.window
    page.open(real.url + "/#/dead?part=outbox%2Fshop")
    sees(page, large.id, ".listed")
    page.click(".listed tbody tr:nth-child(1) input")
    page.run(
        "[...document.querySelectorAll('main button')]"
        ".find(each => each.innerText.startsWith('Requeue 1')).click()"
    )
    sees(page, "Requeue 1 letter?", "#question")
    page.click("#question-yes")
    sees(page, "1 letter was requeued", ".outcome")
    page.open(real.url + "/#/")
    real.is_gone("outbox/shop", within=90)
    until(
        lambda: any(large.id in str(each.headers) for each in real.endpoint.requests),
        within=30,
        what="the event arrives",
    )
    page.open(real.url + "/#/log")
    sees(page, "requeue", "main")
    sees(page, "ops", "main")


def test_a_killed_consumer_is_shown_with_its_lag_until_it_runs_again(real: Real) -> None:
    ended(real.consumer[-1])
    began = now()  # its port refuses at once, long before Kafka's session ends
    commit(real.parts.dsn, *(event("orders", 200 + number) for number in range(7)))
    real.appears("consumer/shipping", "does not answer", "see whether the process runs", began)
    real.alone("consumer/shipping")
    # Offsets count a transaction's marker too, so the number is that of the events or one more.
    real.appears("consumer/shipping", " events wait", "see whether the process runs", now())
    real.consumer.append(real.parts.consumer())
    # Kafka gives its partitions to the next one only once the killed one's session has ended.
    real.is_gone("consumer/shipping", within=90)


def test_a_killed_broker_is_shown_and_nothing_is_green_until_it_is_back(real: Real) -> None:
    real.stack.kafka.kill()
    began = now()
    real.appears("kafka/kafka", "Kafka does not answer", "start the brokers", began)

    def are_green() -> set[str]:
        states = dict(real.window.run(STATES))
        return {"working", "idle", "standby"} & {states["topic/orders"], states["topic/refunds"]}

    until(lambda: not are_green(), within=SEEN_WITHIN, what="no topic is green")
    real.stack.kafka.start()
    real.is_gone("kafka/kafka")
    real.is_well(within=90)


def test_four_views_show_the_troubles_of_real_parts(real: Real) -> None:
    """With `DOVECOTE_PICTURES=docs/images` this makes the pictures of docs/console.md."""
    page, shown_id = real.window, real_troubles(real)
    page.resize(1280, 1080)
    for view, scheme, link, text in (
        ("flow", "light", "", "All parts"),
        ("part", "light", "part/consumer/shipping", "does not answer"),
        ("dead", "dark", "dead", shown_id),
        ("find", "light", f"find?id={shown_id}", "parked"),
    ):
        page.prefer(scheme=scheme, motion="reduce")
        page.open(f"{real.url}/#/{link}")
        sees(page, text, "main")
        sees(page, "as of", "#seen")
        if (folder := os.environ.get("DOVECOTE_PICTURES")) is not None:
            page.screenshot(Path(folder) / f"console-{view}-{scheme}.png")


def real_troubles(real: Real) -> str:
    """Let an endpoint refuse, a consumer die and a relay park; return the parked event's id."""
    real.endpoint.answer = lambda _: Reply(401)
    alter_topic(real.parts.bootstrap, "orders", max_message_bytes="3000")
    large = Event(topic="orders", type="Large", key="bad", value=" " * 5_000)
    commit(real.parts.dsn, large, event("orders", 300))
    ended(real.consumer[-1])
    commit(real.parts.dsn, *(event("orders", 301 + number) for number in range(7)))
    wanted = {"push/main/hook", "consumer/shipping", "outbox/shop"}
    until(
        lambda: wanted <= {each[0] for each in real.on_screen()},
        within=60,
        what="three troubles on the screen",
    )
    return large.id
