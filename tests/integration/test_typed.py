"""Objects are written, published as JSON, and handled as objects; what does not fit is dead."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BaseModel

from dedup import Consumer
from outbox import Event, event, write
from outbox import schema as outbox_schema
from tests.support.consuming import produce, settings
from tests.support.documents import ROOT, blocks
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

PAGE = ROOT / "docs/typed.md"


@event("Placed", topic="orders", key="id")
@dataclass
class Placed:
    id: str
    total: Decimal


@event("Paid", topic="orders")
class Paid(BaseModel):
    id: str


@contextmanager
def running(
    servers: Servers, topic: str, handler: Callable[..., Any], **given: Any
) -> Iterator[None]:
    consumer = Consumer(settings(servers.kafka.bootstrap, topic, **given), handler)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(patient(30))
        assert not thread.is_alive()


def odd(topic: str, type_: str, number: int, value: object) -> Event[object]:
    return Event(topic=topic, key="odd", type=type_, id=f"odd-{number}", value=value)


def sent(servers: Servers, topic: str) -> None:
    produce(
        servers.kafka.bootstrap,
        odd(topic, "Placed", 0, Placed("a", Decimal("1.50"))),
        odd(topic, "Placed", 1, {"id": "b", "total": [1]}),
        odd(topic, "Refunded", 2, {}),
        odd(topic, "Paid", 3, Paid(id="c")),
        odd(topic, "Paid", 4, None),
    )


_SAID = [
    "the value is no Placed: ",
    "takes no events of type 'Refunded'",
    "it is a tombstone",
]


def require_dead(servers: Servers, topic: str) -> None:
    """Check that each of the three odd events is dead after one attempt, with its reason."""

    def letters() -> list[dict[str, Any]]:
        return [dict(each.headers() or ()) for each in consume(servers.kafka.bootstrap, topic)]

    until(lambda: len(letters()) == len(_SAID), within=40, what="three dead letters")
    known = sorted(letters(), key=lambda each: str(each["ce_id"]))
    for said, each in zip(_SAID, known, strict=True):
        assert said in each["dovecote_error"].decode()
        assert each["dovecote_attempt"] == b"1"


def test_objects_are_handled_and_what_does_not_fit_is_dead_at_once(
    stack: Servers, topic: MakeTopic, inbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: dict[str, Any] = conninfo_to_dict(inbox)
    monkeypatch.setenv("PGPASSWORD", str(parts.pop("password", "")))
    name, dead = topic(1), topic(1)
    handled: list[object] = []

    def handle(event: Event[Placed] | Event[Paid], tx: psycopg.Connection[Any]) -> None:
        tx.execute("INSERT INTO effects VALUES (%s)", [event.value.id])
        handled.append(event.value)

    sent(stack, name)
    with running(
        stack,
        name,
        handle,
        inbox={"dsn": make_conninfo(**parts)},
        retries={"dead_letter_topic": dead},
    ):
        until(lambda: len(handled) == 2, within=40, what="two objects")
        require_dead(stack, dead)
    assert handled == [Placed("a", Decimal("1.50")), Paid(id="c")]
    with psycopg.connect(inbox) as conn:
        assert sorted(conn.execute("SELECT id FROM effects").fetchall()) == [("a",), ("c",)]


def test_a_list_of_objects_is_handled_without_the_ones_that_do_not_fit(
    stack: Servers, topic: MakeTopic
) -> None:
    name, dead = topic(1), topic(1)
    handled: list[object] = []

    async def handle(events: list[Event[Placed | Paid]]) -> None:
        handled.extend(each.value for each in events)

    sent(stack, name)
    given = {"handler_batch": 10, "order": "none", "retries": {"dead_letter_topic": dead}}
    with running(stack, name, handle, **given):
        until(lambda: len(handled) == 2, within=40, what="two objects")
        require_dead(stack, dead)


def test_the_examples_of_the_page_run(database: str) -> None:
    with psycopg.connect(database) as conn:
        outbox_schema.install(conn)
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        write(conn, Placed("a", Decimal(1)))
    names: dict[str, Any] = {"dsn": database, "__name__": "typed"}
    for block in blocks(PAGE, "python"):
        exec(compile(block.text, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102  # the page's own
    with psycopg.connect(database) as conn:
        found = conn.execute(
            "SELECT key, convert_from(value, 'utf8')::jsonb ->> 'total' FROM outbox.events"
            " ORDER BY 1"
        ).fetchall()
    assert found == [(b"a", "1"), (b"order-42", "9.90"), (b"order-43", "1.50")]
    from dedup.testing import Trial  # the page's handler

    [outcome] = Trial(names["handle"]).feed(Event(topic="orders", type="OrderPaid", value={}))
    assert (outcome.what, "value.order_id" in outcome.reason) == ("held", True)
