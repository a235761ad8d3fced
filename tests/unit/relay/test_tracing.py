"""A published batch is a span, if anybody records spans."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from relay.tracing import publishing

WITHOUT = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from relay.tracing import publishing
row = (1, "id", 0, "t", None, None, "T", "s", None, None, None, None)
with publishing("shop", [row]) as span:
    assert span is None
assert "opentelemetry.trace" not in sys.modules
print("nothing happened")
"""


def row(traceparent: str | None = None) -> tuple[Any, ...]:
    """Return a row in the form of a capture."""
    names = None if traceparent is None else ["traceparent", "tenant"]
    values = None if traceparent is None else [traceparent.encode(), b"a"]
    return (1, "id", 0, "orders", None, None, "T", "s", None, None, names, values)


def traceparent(trace: int, span: int = 1) -> str:
    return f"00-{trace:032x}-{span:016x}-01"


def test_a_span_says_what_was_published_and_links_to_where_it_came_from(
    spans: InMemorySpanExporter,
) -> None:
    rows = [row(), row(traceparent(7, 1)), row(traceparent(7, 2)), row(traceparent(8))]
    with publishing("shop", rows):
        assert spans.get_finished_spans() == ()
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind) == ("send orders", SpanKind.CLIENT)
    assert span.attributes is not None
    assert span.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 4,
        "dovecote.outbox": "shop",
    }
    assert [link.context.trace_id for link in span.links] == [7, 8]


def test_a_span_fails_with_its_batch(spans: InMemorySpanExporter) -> None:
    with pytest.raises(OSError, match="no broker"), publishing("shop", [row()]):
        raise OSError("no broker")  # noqa: EM101, TRY003  # a test's own
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "OSError"


def test_a_span_of_several_topics_names_none(spans: InMemorySpanExporter) -> None:
    rows = [row(), row()]
    rows[1] = (*rows[1][:3], "payments", *rows[1][4:])
    with publishing("shop", rows):
        pass
    with publishing("shop", joined := [row()]):
        joined += rows
    assert [span.name for span in spans.get_finished_spans()] == ["send", "send"]


def test_links_are_no_more_than_an_sdk_keeps(spans: InMemorySpanExporter) -> None:
    with publishing("shop", [row(traceparent(number)) for number in range(1, 1000)]):
        pass
    (span,) = spans.get_finished_spans()
    assert len(span.links) == 128


def test_what_joins_a_batch_later_is_in_its_span(spans: InMemorySpanExporter) -> None:
    rows = [row(traceparent(7))]
    with publishing("shop", rows):
        rows += [row(traceparent(7, 2)), row(traceparent(8))]
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert [link.context.trace_id for link in span.links] == [7, 8]


def test_what_is_no_trace_context_is_no_link(spans: InMemorySpanExporter) -> None:
    strange = [row("rubbish"), row("00-" + "0" * 32 + "-" + "0" * 16 + "-01"), row("\xff")]
    with publishing("shop", strange):
        pass
    (span,) = spans.get_finished_spans()
    assert span.links == ()


def test_no_rows_are_no_span(spans: InMemorySpanExporter) -> None:
    with publishing("shop", []):
        pass
    assert spans.get_finished_spans() == ()


def test_without_opentelemetry_nothing_happens() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert done.stdout == "nothing happened\n"
