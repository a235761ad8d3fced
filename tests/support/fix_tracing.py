"""Record spans in memory, for the length of a test."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext

from outbox.tracing import creating


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Records the spans that end in this test."""
    with recording() as exporter:
        yield exporter


@contextmanager
def recording(sampler: Sampler | None = None) -> Iterator[InMemorySpanExporter]:
    """Set up an SDK that keeps the sampled spans, until the end of the block."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The API sets a provider once in a process, and other tests must do without one.
    before, trace._TRACER_PROVIDER = trace._TRACER_PROVIDER, provider
    creating._spans.cache_clear()
    try:
        yield exporter
    finally:
        trace._TRACER_PROVIDER = before
        creating._spans.cache_clear()
        provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    """Return the ended spans of a name, in the order of their beginnings."""
    found = [span for span in exporter.get_finished_spans() if span.name == name]
    return sorted(found, key=lambda span: span.start_time or 0)


def linked(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that a span is linked to."""
    return [link.context.span_id for link in span.links]


def context_of(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def ids(spans: Sequence[ReadableSpan]) -> list[int]:
    return [context_of(span).span_id for span in spans]


def traces(spans: Sequence[ReadableSpan]) -> set[int]:
    return {context_of(span).trace_id for span in spans}


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def said(span: ReadableSpan) -> dict[str, object]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})
