"""Record spans in memory."""

from collections.abc import Iterator
from functools import cache

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def _exporter() -> InMemorySpanExporter:
    """Set up the provider, which is possible only once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Records the spans that end in this test."""
    exporter = _exporter()
    exporter.clear()
    yield exporter
    exporter.clear()
