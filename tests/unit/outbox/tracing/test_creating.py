"""An event without a trace of its own gets a span where it is written."""

import subprocess
import sys

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outbox import Event, Limits
from outbox.event import TRACEPARENT
from outbox.writing.append import Append
from tests.support.fix_tracing import context_of, named, parent_of, recording, said

OWN = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

WITHOUT = """
import sys
from outbox import Event, Limits
from outbox.writing.append import Append
if {api}:
    import opentelemetry.trace
stored = Append([Event(topic="orders", type="OrderPlaced")], "outbox", Limits()).statement().params
assert len(stored) == 9, stored  # no headers
loaded = [name for name in sys.modules if name.startswith("opentelemetry.sdk")]
assert not loaded, loaded
assert {api} or not any(name.startswith("opentelemetry") for name in sys.modules)
print("nothing happened")
"""


def headers(*events: Event) -> list[object]:
    """Return the stored headers of events that are written now."""
    return list(Append(events, "outbox", Limits()).statement().params[9:][-2:])


def event(traceparent: str | None = None, **given: object) -> Event:
    return Event(topic="orders", type="OrderPlaced", traceparent=traceparent, **given)  # type: ignore[arg-type]  # as callers say


def carrying(span: SpanContext) -> bytes:
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}".encode()


@pytest.mark.parametrize("api", [True, False])
def test_without_an_sdk_nothing_is_loaded_and_no_header_is_added(*, api: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(api=api)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "nothing happened\n"


def test_each_event_has_a_span_of_its_creation_and_carries_it(
    spans: InMemorySpanExporter,
) -> None:
    with trace.get_tracer("shop").start_as_current_span("place") as place:
        stored = headers(event(id="0192d3a8-0000-7000-8000-000000000001"), event(value=b"1"))
    first, second = (context_of(span) for span in named(spans, "create orders"))
    assert stored == [["traceparent", "traceparent"], [carrying(first), carrying(second)]]
    assert all(TRACEPARENT.fullmatch(each.decode()) for each in stored[1])  # type: ignore[attr-defined]  # a list
    for span in named(spans, "create orders"):
        assert span.kind is SpanKind.PRODUCER
        assert parent_of(span) == place.get_span_context().span_id
        assert context_of(span).trace_id == place.get_span_context().trace_id
    assert said(named(spans, "create orders")[0]) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "orders",
        "messaging.message.id": "0192d3a8-0000-7000-8000-000000000001",
        "messaging.kafka.message.tombstone": True,
    }


def test_an_event_that_is_written_outside_of_a_span_begins_a_trace(
    spans: InMemorySpanExporter,
) -> None:
    assert headers(event())[0] == ["traceparent"]
    assert parent_of(named(spans, "create orders")[0]) is None


def test_the_trace_of_the_event_itself_comes_first(spans: InMemorySpanExporter) -> None:
    assert headers(event(traceparent=OWN)) == [["traceparent"], [OWN.encode()]]
    assert spans.get_finished_spans() == ()


def test_without_spans_of_creation_an_event_carries_the_current_span(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVECOTE_TRACE_CREATION", "false")
    assert headers(event()) == []
    with trace.get_tracer("shop").start_as_current_span("place") as place:
        assert headers(event()) == [["traceparent"], [carrying(place.get_span_context())]]
    assert [span.name for span in spans.get_finished_spans()] == ["place"]


def test_a_context_from_elsewhere_is_passed_on_without_an_sdk() -> None:
    state = TraceState([("vendor", "x")])
    origin = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0), trace_state=state)
    with trace.use_span(NonRecordingSpan(origin)):
        stored = headers(event())
    assert stored == [["traceparent", "tracestate"], [carrying(origin), b"vendor=x"]]


def test_an_unsampled_trace_records_nothing_and_is_passed_on() -> None:
    with recording(ParentBased(ALWAYS_OFF)) as spans:
        ((names, values),) = [headers(event())]
    assert spans.get_finished_spans() == ()
    assert names == ["traceparent"]
    assert values[0].endswith(b"00") or values[0].endswith(b"02")  # type: ignore[index]  # a list


def test_sampling_by_a_share_is_that_of_the_process() -> None:
    with recording(ParentBased(TraceIdRatioBased(0.5))) as spans:
        values = [headers(event())[1][0] for _ in range(200)]  # type: ignore[index]  # a list
    sampled = [value for value in values if int(value[-2:], 16) & 1]
    assert len(spans.get_finished_spans()) == len(sampled)
    assert 50 < len(sampled) < 150


def test_headers_of_the_users_propagators_are_added_unless_the_event_has_them(
    spans: InMemorySpanExporter,
) -> None:
    token = context.attach(baggage.set_baggage("tenant", "a"))
    try:
        assert headers(event())[0] == ["traceparent", "baggage"]
        own = event(headers=[("baggage", "b=1")])
        assert headers(own)[0] == ["traceparent", "baggage"]
        assert headers(own)[1][1] == b"b=1"  # type: ignore[index]  # a list
    finally:
        context.detach(token)
    assert len(spans.get_finished_spans()) == 3


def test_headers_that_are_too_long_are_left_out(spans: InMemorySpanExporter) -> None:
    many = TraceState([(f"k{number}", "v" * 200) for number in range(10)])
    origin = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=many)
    token = context.attach(baggage.set_baggage("tenant", "a" * 5_000))
    try:
        with trace.use_span(NonRecordingSpan(origin)):
            assert headers(event())[0] == ["traceparent"]
    finally:
        context.detach(token)
    assert len(spans.get_finished_spans()) == 1


class Broken(TraceContextTextMapPropagator):
    """Raises whatever is asked of it."""

    fields = frozenset({"x-broken"})  # type: ignore[assignment]  # as a property

    def inject(self, *_: object, **__: object) -> None:
        raise RuntimeError("broken")  # noqa: EM101  # a test's own

    def extract(self, *_: object, **__: object) -> Context:
        raise RuntimeError("broken")  # noqa: EM101  # a test's own


def test_a_propagator_that_fails_breaks_no_event(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = CompositePropagator([Broken()])
    monkeypatch.setattr("opentelemetry.propagate._HTTP_TEXT_FORMAT", broken, raising=False)
    monkeypatch.setattr("opentelemetry.propagate.propagator", broken, raising=False)
    assert headers(event())[0] == ["traceparent"]
    assert len(spans.get_finished_spans()) == 1
