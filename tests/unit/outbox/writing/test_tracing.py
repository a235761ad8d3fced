"""An event without a trace of its own belongs to the current trace."""

from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outbox import Event, Limits
from outbox.event import TRACEPARENT
from outbox.writing.append import Append
from outbox.writing.tracing import current_traceparent

OWN = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def headers(*events: Event) -> list[object]:
    """Return the stored headers of events that are written now."""
    return list(Append(events, "outbox", Limits()).statement().params[9:][-2:])


def event(traceparent: str | None = None) -> Event:
    return Event(topic="orders", type="OrderPlaced", traceparent=traceparent)


def test_without_a_span_there_is_no_trace(spans: InMemorySpanExporter) -> None:
    assert spans.get_finished_spans() == ()
    assert current_traceparent() is None
    assert headers(event()) == []


def test_an_event_carries_the_current_span(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("shop").start_as_current_span("place"):
        traceparent = current_traceparent()
        assert headers(event()) == [["traceparent"], [str(traceparent).encode()]]
        told: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(told)
    assert len(spans.get_finished_spans()) == 1
    assert told == {"traceparent": traceparent}
    assert TRACEPARENT.fullmatch(str(traceparent))


def test_small_numbers_are_filled_up_and_an_unsampled_trace_says_so() -> None:
    context = SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=TraceFlags(0))
    with trace.use_span(NonRecordingSpan(context)):
        assert (
            current_traceparent() == "00-" + "1".rjust(32, "0") + "-" + "2".rjust(16, "0") + "-00"
        )


def test_the_trace_of_the_event_itself_comes_first(spans: InMemorySpanExporter) -> None:
    assert spans.get_finished_spans() == ()
    with trace.get_tracer("shop").start_as_current_span("place"):
        current = str(current_traceparent()).encode()
        assert headers(event(traceparent=OWN)) == [["traceparent"], [OWN.encode()]]
        stored = headers(event(traceparent=OWN), event())
    assert stored == [["traceparent", "traceparent"], [OWN.encode(), current]]
