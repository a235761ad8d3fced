"""A trace of an event says what became of its record in a consumer."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from dedup.consumer import Consumer
from dedup.inbox import schema as inbox_schema
from dedup.rules.policies.results import Dead, Result, Retry
from dovecote.devstack import Stack
from outbox import Event
from tests.support.consuming import consuming, event, produce, settings
from tests.support.fix_stack import MakeTopic
from tests.support.fix_tracing import ids, linked, named, parent_of, said, traces
from tests.support.waiting import consume, patient, until

SWIFT = {"base": "20ms", "ceiling": "50ms", "max_attempts": 3}


@pytest.fixture
def kafka(stack: Stack) -> str:
    return stack.kafka.bootstrap


def origin(number: int, flags: int = 1) -> str:
    return f"00-{number:032x}-{number:016x}-{flags:02x}"


def traced(topic: str, number: int, key: str | None = None, **given: Any) -> Event:
    return Event(topic=topic, key=key, type="T", value=number, traceparent=origin(number), **given)


def test_each_attempt_and_the_dead_letter_are_in_the_trace_of_the_event(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    name, retry, dead = topic(), topic(), topic()
    attempts = iter(["raises", "retry"])

    def handle(_: Event) -> Result:
        if next(attempts, "") == "raises":
            raise ValueError("no stock")  # noqa: EM101, TRY003  # a test's own
        return Retry("no van")

    produce(kafka, traced(name, 7, "a", headers=[("tracestate", "vendor=1")]))
    tiers = [{"topic": retry, "wait": "50ms"}]
    plan = {"tiers": tiers, "dead_letter_topic": dead, **SWIFT}
    with consuming(kafka, name, handle, retries=plan):
        until(lambda: named(spans, f"send {dead}"), within=40, what="a dead letter")
    first = named(spans, f"process {name}")
    again = named(spans, f"process {retry}")
    sent, buried = named(spans, f"send {retry}"), named(spans, f"send {dead}")
    assert [said(span)["dovecote.attempt"] for span in (*first, *again)] == [1, 2, 3]
    assert [said(span)["dovecote.outcome"] for span in (*first, *again)] == [
        "failed",
        "retry",
        "retry",
    ]
    assert [said(span)["error.type"] for span in (*first, *again)] == [
        "ValueError",
        "Retry",
        "Retry",
    ]
    assert first[0].events[0].name == "exception"
    assert [said(span)["dovecote.outcome"] for span in (*sent, *buried)] == [
        "retry",
        "retry",
        "dead_letter",
    ]
    assert [said(span)["dovecote.attempt"] for span in (*sent, *buried)] == [1, 2, 3]
    assert said(buried[0])["dovecote.reason"] == "no van"
    everything = [*first, *again, *sent, *buried]
    assert traces(everything) == {7}
    assert {parent_of(span) for span in everything} == {7}
    (letter,) = consume(kafka, dead)
    headers = dict(letter.headers() or [])
    assert headers["traceparent"] == origin(7).encode()
    assert headers["tracestate"] == b"vendor=1"


@pytest.mark.parametrize("awaited", [False, True])
def test_a_handler_of_several_records_runs_in_one_span_that_is_linked_to_all(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter, *, awaited: bool
) -> None:
    name, current = topic(), []

    def handle(events: Sequence[Event]) -> list[Result | None]:
        current.append(trace.get_current_span().get_span_context().span_id)
        bad = [Dead("no") if each.value == 3 else None for each in events]
        return list(bad)

    async def handle_awaited(events: Sequence[Event]) -> list[Result | None]:
        return handle(events)

    produce(kafka, *(traced(name, number, f"k{number}") for number in (1, 2, 3, 4)))
    dead = topic()
    given = {"handler_batch": 10, "retries": {"dead_letter_topic": dead}}
    consumer = Consumer(settings(kafka, name, **given), handle_awaited if awaited else handle)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run)
        try:
            until(lambda: named(spans, f"send {dead}"), within=30, what="a dead letter")
        finally:
            consumer.stop()
        running.result(patient(30))
    found = named(spans, f"process {name}")
    assert sorted(link for span in found for link in linked(span)) == [1, 2, 3, 4]
    assert set(ids(found)) == set(current)
    whole = [span for span in found if len(span.links) > 1]
    for span in whole:
        assert parent_of(span) is None
        assert said(span)["messaging.batch.message_count"] == len(span.links)
    (with_bad,) = [span for span in found if 3 in linked(span)]
    assert with_bad.status.status_code is StatusCode.ERROR
    assert parent_of(named(spans, f"send {dead}")[0]) == 3


def test_skipped_records_say_why_in_their_traces(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    name = topic()
    same = traced(name, 2, "a", id="same")
    produce(kafka, traced(name, 1, "a", id="odd"), same, same)
    produce(kafka, Event(topic=name, key="a", type="T", value=4, id="untraced"))
    with consuming(kafka, name, policy="exact", filter="value == 2"):
        until(
            lambda: len(named(spans, f"process {name}")) >= 3, within=20, what="spans of records"
        )
    found = {
        (parent_of(span), said(span)["dovecote.outcome"], said(span).get("dovecote.reason"))
        for span in named(spans, f"process {name}")
    }
    assert found == {(1, "skipped", "filtered"), (2, "done", None), (2, "skipped", "duplicate")}


def test_the_inbox_says_of_a_duplicate_that_it_is_one(
    kafka: str,
    topic: MakeTopic,
    database: str,
    spans: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
    given = psycopg.conninfo.conninfo_to_dict(database)
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
    dsn = psycopg.conninfo.make_conninfo("", **{k: str(v) for k, v in given.items()})
    name, same = topic(), traced("x", 5, "a", id="same")
    same = Event(topic=name, key="a", type="T", value=1, id="same", traceparent=same.traceparent)
    produce(kafka, same, same)
    with consuming(kafka, name, policy="every", inbox={"dsn": dsn}):
        until(lambda: len(named(spans, f"process {name}")) == 2, within=30, what="two spans")
    first, second = named(spans, f"process {name}")
    assert said(first)["dovecote.outcome"] == "done"
    assert said(second)["dovecote.outcome"] == "skipped"
    assert said(second)["dovecote.reason"] == "duplicate of same"
    assert {parent_of(first), parent_of(second)} == {5}


HOSTILE: list[list[tuple[str, bytes | None]]] = [
    [("traceparent", b"\xff" * 900)],
    [("traceparent", b"00-" + b"a" * 100_000)],
    [("traceparent", b"")],
    [("traceparent", None)],
    [("traceparent", origin(1).encode()), ("traceparent", origin(2).encode())],
    [("traceparent", origin(1).encode()), ("tracestate", b"a=" + b"x" * 100_000)],
    [("traceparent", origin(1).encode()), ("tracestate", b"\x00,=,,=\xff")],
    [("traceparent", origin(1).encode()), ("baggage", b"\xff=\x00;;,=" * 1_000)],
    [("tracestate", b"a=1")],
    [("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")],
]


def test_hostile_headers_break_no_record(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    name, producer = topic(), Producer({"bootstrap.servers": kafka})
    for headers in HOSTILE:
        producer.produce(name, b"1", headers=headers)  # type: ignore[arg-type]  # values may be None
    assert producer.flush(patient(20)) == 0
    produce(kafka, event(name, "last", 1))
    with consuming(kafka, name, policy="every") as consumer:
        consumer.has_handled(len(HOSTILE) + 1)
    done = named(spans, f"process {name}")
    assert len(done) == len(HOSTILE) + 1
    assert {said(span)["dovecote.outcome"] for span in done} == {"done"}
    assert sum(parent_of(span) == 1 for span in done) == 4


def test_a_handler_sees_no_span_where_nobody_records_any(kafka: str, topic: MakeTopic) -> None:
    name, seen = topic(), []
    produce(kafka, traced(name, 1, "a"))

    def handle(_: Event) -> None:
        seen.append(trace.get_current_span().get_span_context().is_valid)

    with consuming(kafka, name, handle) as consumer:
        consumer.has_handled(1)
    assert seen == [False]


def test_keys_are_in_spans_only_where_they_may_be(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    produce(kafka, traced(name, 1, "anna"))
    for shown in ("false", "true"):
        monkeypatch.setenv("DOVECOTE_TRACE_KEYS", shown)
        with consuming(kafka, name, group=f"{name}-{shown}") as consumer:
            consumer.has_handled(1)
    keys = [said(s).get("messaging.kafka.message.key") for s in named(spans, f"process {name}")]
    assert keys == [None, "anna"]
