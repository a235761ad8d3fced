"""A micro-batch is a span that is linked to the events in it, and results carry them on."""

import json

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outbox.envelope import ID
from spark_jobs.errors import QueryFailed
from spark_jobs.query.tracing import batch_span
from spark_jobs.rows.contexts import contexts, joined
from tests.spark.fix_spark import MakeJob
from tests.spark.fix_stateful import T0, MakeStateful, Sent
from tests.support.fix_stack import MakeTopic
from tests.support.fix_tracing import linked, named, said


def origin(number: int, flags: int = 1) -> bytes:
    return f"00-{number:032x}-{number:016x}-{flags:02x}".encode()


@pytest.mark.parametrize("grouping", ["partitions", "shuffle"])
def test_a_batch_is_linked_to_its_events_and_its_output_carries_their_context(
    job: MakeJob, spans: InMemorySpanExporter, grouping: str
) -> None:
    dedup = job().with_(spark={"grouping": grouping})
    dedup.send(
        ("a", b"1", [(ID, b"one"), ("traceparent", origin(1)), ("tracestate", b"v=1")]),
        ("a", b"2", [(ID, b"two"), ("traceparent", origin(2, flags=0))]),
        ("b", b"3", [(ID, b"three"), ("traceparent", b"\xff" * 1_000)]),
        ("c", b"4", [(ID, b"four"), ("traceparent", origin(4))]),
    )
    dedup.run()
    found = named(spans, "process")
    assert sorted(link for span in found for link in linked(span)) == [1, 4]
    for span in found:
        assert span.kind is SpanKind.CONSUMER
        assert said(span)["dovecote.query"]
    assert sum(said(span)["messaging.batch.message_count"] for span in found) == 4  # type: ignore[misc]  # numbers
    carried = {
        dict(each.headers)[ID]: dict(each.headers).get("traceparent") for each in dedup.output()
    }
    assert carried[b"one"] == origin(1)
    assert carried[b"four"] == origin(4)


def test_outputs_of_a_handler_carry_the_context_of_their_event(
    job: MakeJob, spans: InMemorySpanExporter
) -> None:
    dedup = job(handler="tests.unit.spark_jobs.handlers:by_value")
    value = json.dumps({"do": "split"}).encode()
    headers = [(ID, b"one"), ("traceparent", origin(1)), ("tracestate", b"v=1")]
    dedup.send(("a", value, headers))
    dedup.run()
    assert len(named(spans, "process")) == 1
    assert len(dedup.output()) == 2
    for each in dedup.output():
        found = dict(each.headers)
        assert (found["traceparent"], found["tracestate"]) == (origin(1), b"v=1")


def test_a_batch_of_a_stateful_job_is_linked_too(
    stateful: MakeStateful, topic: MakeTopic, spans: InMemorySpanExporter
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="5s")
    sent = [
        Sent(clicks, f"k{number}", T0, number, headers=[("traceparent", origin(number))])
        for number in (1, 2)
    ]
    job.send(*sent)
    job.run_until(lambda: job.rows() == len(sent), "all is read")
    found = [span for span in named(spans, "process") if span.links]
    assert sorted(link for span in found for link in linked(span)) == [1, 2]
    assert sum(said(span)["messaging.batch.message_count"] for span in found) == 2  # type: ignore[misc]  # numbers


def test_a_batch_without_records_has_no_span_and_one_that_fails_says_so(
    spans: InMemorySpanExporter,
) -> None:
    with batch_span("q", 1) as told_of:
        told_of([])
    assert spans.get_finished_spans() == ()
    with pytest.raises(QueryFailed), batch_span("q", 2):
        raise QueryFailed("Kafka is away")  # noqa: EM101, TRY003  # a test's own
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert said(span)["error.type"] == "QueryFailed"


def test_a_task_reports_few_contexts_each_of_another_trace() -> None:
    headers = [[("traceparent", origin(number // 2 + 1))] for number in range(100)]
    found = contexts(len(headers), lambda row: headers[row])
    assert found == [origin(number).decode() for number in range(1, 17)]
    assert joined([found, found, ["x"]]) == found
