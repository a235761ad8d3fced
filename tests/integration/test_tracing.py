"""A trace leads from the service, through the outbox and the relay, to the record."""

import threading
from uuid import uuid4

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.devstack import Stack
from outbox import Event, write
from relay.health import Health
from relay.metrics import Metrics
from relay.settings import RelaySettings
from relay.standby import Standby
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import installed
from tests.support.waiting import consume, patient, until


def test_the_span_of_a_batch_is_linked_to_the_span_that_wrote_its_event(
    stack: Stack,
    database: str,
    topic: MakeTopic,
    spans: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, target = f"traced-{uuid4().hex[:12]}", topic()
    with (
        psycopg.connect(installed(database)) as conn,
        trace.get_tracer("shop").start_as_current_span("place an order") as span,
    ):
        write(conn, Event(topic=target, type="OrderPlaced"))
        origin = span.get_span_context()
    given = conninfo_to_dict(database)
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
    settings = RelaySettings.model_validate(
        {
            "name": name,
            "dsn": make_conninfo("", **given),
            "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
        }
    )
    relay, stop = Standby(settings, health=Health(), metrics=[Metrics(name)]), threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        until(lambda: published(spans, name), within=30, what="a batch is published")
    finally:
        stop.set()
        thread.join(patient(20))
    (batch,) = published(spans, name)
    assert [link.context.span_id for link in batch.links] == [origin.span_id]
    (message,) = consume(stack.kafka.bootstrap, target)
    headers = dict(message.headers() or [])
    sent = f"00-{origin.trace_id:032x}-{origin.span_id:016x}-{origin.trace_flags:02x}"
    assert headers["traceparent"] == sent.encode()


def published(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == f"publish {name}"]
