"""One event is one trace: from the service, through the outbox and Kafka, to what handles it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.devstack import Stack
from outbox import Event, write
from outbox.producer.options import Options
from outbox.producer.producer import Producer
from relay.health import Health
from relay.metrics import Metrics
from relay.settings import RelaySettings
from relay.standby import Standby
from tests.support.consuming import consuming, produce
from tests.support.delivering import Endpoint, Reply, Request, all_committed, pushing, subscribed
from tests.support.fix_stack import MakeTopic
from tests.support.fix_tracing import (
    context_of,
    ids,
    linked,
    named,
    parent_of,
    recording,
    said,
    traces,
)
from tests.support.relaying import installed
from tests.support.waiting import consume, patient, until


@pytest.fixture
def kafka(stack: Stack) -> str:
    return stack.kafka.bootstrap


@contextmanager
def relaying(database: str, kafka: str) -> Iterator[str]:
    """Publish an outbox until the end of the block; yield the outbox's name."""
    name = f"traced-{uuid4().hex[:12]}"
    settings = RelaySettings.model_validate(
        {"name": name, "dsn": database, "kafka": {"bootstrap.servers": kafka}}
    )
    relay, stop = Standby(settings, health=Health(), metrics=[Metrics(name)]), threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        yield name
    finally:
        stop.set()
        thread.join(patient(20))


@pytest.fixture
def outbox(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The connection string of a database with an outbox, whose password is a variable."""
    given = conninfo_to_dict(installed(database))
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
    return make_conninfo("", **{name: str(value) for name, value in given.items()})


def carrying(span: ReadableSpan) -> str:
    found = context_of(span)
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def carried_by(message: Message) -> str:
    value = dict(message.headers() or [])["traceparent"]
    assert isinstance(value, bytes)
    return value.decode()


def ship(event: Event) -> None:
    with trace.get_tracer("shipping").start_as_current_span(f"ship {event.value}"):
        pass


@pytest.mark.parametrize("awaited", [False, True])
def test_an_event_is_one_trace_from_its_transaction_to_handler_and_request(
    kafka: str,
    outbox: str,
    topic: MakeTopic,
    spans: InMemorySpanExporter,
    *,
    awaited: bool,
) -> None:
    target = topic()
    with (
        relaying(outbox, kafka) as name,
        consuming(kafka, target, ship, awaited=awaited) as consumer,
        Endpoint() as endpoint,
    ):
        with pushing(kafka, subscribed(target, endpoint.url)):
            with (
                psycopg.connect(outbox) as conn,
                trace.get_tracer("shop").start_as_current_span("place an order"),
            ):
                write(conn, *(Event(topic=target, type="OrderPlaced", value=n) for n in (1, 2)))
            consumer.has_handled(2)
            endpoint.has_got(2)
            all_committed(kafka, target)
        until(lambda: len(named(spans, "POST")) == 2, within=20, what="requests have ended")
    (placed,) = named(spans, "place an order")
    created = named(spans, f"create {target}")
    assert [parent_of(span) for span in created] == ids([placed, placed])

    (sent,) = named(spans, f"send {target}")
    assert sent.kind is SpanKind.CLIENT
    assert said(sent)["dovecote.outbox"] == name
    assert linked(sent) == ids(created[:1])  # one link for each trace

    processed = named(spans, f"process {target}")
    assert sorted(map(parent_of, processed), key=str) == sorted(ids(created), key=str)
    for span in processed:
        assert span.kind is SpanKind.CONSUMER
        assert linked(span) == [parent_of(span)]
        assert said(span)["dovecote.outcome"] == "done"
        assert said(span)["messaging.consumer.group.name"] == target
        assert said(span)["messaging.destination.partition.id"] == "0"
    assert {said(span)["messaging.message.id"] for span in processed} == {
        said(span)["messaging.message.id"] for span in created
    }
    shipped = [*named(spans, "ship 1"), *named(spans, "ship 2")]
    assert {parent_of(span) for span in shipped} == set(ids(processed))

    requests = named(spans, "POST")
    assert sorted(map(parent_of, requests), key=str) == sorted(ids(created), key=str)
    assert {request.headers["traceparent"] for request in endpoint.requests} == {
        carrying(span) for span in requests
    }
    everything = [placed, *created, *processed, *shipped, *requests]
    assert len(traces(everything)) == 1

    polled = [span for span in named(spans, f"poll {target}") if span.links]
    assert {parent_of(span) for span in polled} == {None}
    assert {span for each in polled for span in linked(each)} <= set(ids(created))
    assert {said(span)["messaging.operation.type"] for span in polled} == {"receive"}
    settled = named(spans, f"commit {target}")
    assert said(settled[-1])["messaging.operation.type"] == "settle"
    assert {said(span)["messaging.consumer.group.name"] for span in settled} >= {target}

    carried = {carried_by(m) for m in consume(kafka, target)}
    assert carried == {carrying(span) for span in created}


def test_a_request_that_is_sent_again_has_a_span_for_each_attempt(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    name, answers = topic(), iter([503, 503, 200])

    def answer(_: Request) -> Reply:
        return Reply(next(answers), body=b"busy")

    origin = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    produce(kafka, Event(topic=name, key="k", type="T", value=1, traceparent=origin))
    retry = {"type": "backoff", "base": "20ms", "ceiling": "100ms", "max_attempts": 5}
    with Endpoint(answer) as endpoint:
        url = endpoint.url + "?token=secret"
        work = subscribed(name, url, retry=retry, format="cloudevents_binary")
        with pushing(kafka, work):
            endpoint.has_got(3)
            all_committed(kafka, name)
    requests = named(spans, "POST")
    assert [said(span).get("http.response.status_code") for span in requests] == [503, 503, 200]
    assert [said(span).get("http.request.resend_count") for span in requests] == [None, 1, 2]
    assert [said(span)["dovecote.attempt"] for span in requests] == [1, 2, 3]
    assert [said(span).get("error.type") for span in requests] == ["503", "503", None]
    outcomes = [said(span)["dovecote.outcome"] for span in requests]
    assert outcomes == ["retry", "retry", "delivered"]
    assert [span.status.description for span in requests] == ["busy", "busy", None]
    assert {parent_of(span) for span in requests} == {int("b" * 16, 16)}
    assert traces(requests) == {int("a" * 32, 16)}
    for request, span in zip(endpoint.requests, requests, strict=True):
        assert request.headers["traceparent"] == carrying(span)
        # The event's own origin, as the extension of CloudEvents says.
        assert request.headers["ce-traceparent"] == origin
        assert "secret" not in str(said(span))
        assert said(span)["url.full"] == endpoint.url


def test_a_subscription_may_set_traceparent_itself(
    kafka: str, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    name = topic()
    produce(kafka, Event(topic=name, type="T", value=1, traceparent=f"00-{1:032x}-{2:016x}-01"))
    with Endpoint() as endpoint:
        work = subscribed(name, endpoint.url, endpoint={"headers": {"Traceparent": "ours"}})
        with pushing(kafka, work):
            endpoint.has_got(1)
            all_committed(kafka, name)
    assert endpoint.requests[0].headers["traceparent"] == "ours"
    assert len(named(spans, "POST")) == 1


def test_an_unsampled_event_records_nothing_and_its_context_goes_on(
    kafka: str, outbox: str, topic: MakeTopic
) -> None:
    name, seen = topic(), []

    def handle(_: Event) -> None:
        seen.append(trace.get_current_span().get_span_context())

    with (
        recording(ParentBased(ALWAYS_OFF)) as spans,
        relaying(outbox, kafka),
        consuming(kafka, name, handle) as consumer,
        Endpoint() as endpoint,
        pushing(kafka, subscribed(name, endpoint.url)),
    ):
        with psycopg.connect(outbox) as conn:
            write(conn, Event(topic=name, type="OrderPlaced"))
        consumer.has_handled(1)
        endpoint.has_got(1)
    assert spans.get_finished_spans() == ()
    (message,) = consume(kafka, name)
    carried = carried_by(message)
    number = int(carried.split("-")[1], 16)
    assert [span.trace_id for span in seen] == [number]
    assert not seen[0].trace_flags.sampled
    told = endpoint.requests[0].headers["traceparent"]
    assert told.split("-")[1] == carried.split("-")[1]
    assert int(told[-2:], 16) & 1 == 0


def test_an_event_that_is_sent_directly_comes_from_the_span_that_sends_it(
    kafka: str, outbox: str, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    name, own = topic(), f"00-{1:032x}-{2:016x}-01"
    options = Options(fresh=True)
    with Producer(outbox, {"bootstrap.servers": kafka}, options=options) as producer:
        with trace.get_tracer("shop").start_as_current_span("place") as place:
            assert producer.send(Event(topic=name, key="a", type="T", value=1)) == "kafka"
        producer.send(Event(topic=name, key="a", type="T", value=2, traceparent=own))
    first, second = named(spans, f"send {name}")
    assert (first.kind, second.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT)
    assert parent_of(first) == place.get_span_context().span_id
    assert said(first)["dovecote.via"] == "kafka"
    assert linked(second) == [2]
    carried = [carried_by(m) for m in consume(kafka, name)]
    assert carried == [carrying(first), own]
