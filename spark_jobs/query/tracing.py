"""Make the span of a micro-batch, with links to where some of its records come from."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from outbox.tracing import conventions as names
from outbox.tracing.gate import spans_of
from outbox.tracing.headers import TRACEPARENT
from spark_jobs.query.batch import BatchReport

if TYPE_CHECKING:
    from outbox.tracing.spans import Spans

Reported: TypeAlias = Callable[[Sequence[BatchReport]], None]
"""Takes the reports of a batch's tasks."""


@contextmanager
def batch_span(query: str, number: int) -> Iterator[Reported]:
    """
    Yield what takes the reports of a batch; the batch then has a span from the block's beginning.

    A batch without records has none. The span fails with what is raised in the block.
    """
    spans = spans_of("spark")
    reports: list[BatchReport] = []
    if spans is None:
        yield _ignored
        return
    failure: Exception | None = None
    began = time.time_ns()
    try:
        yield reports.extend
    except Exception as error:
        failure = error
        raise
    finally:
        rows = sum(each.counts.rows for each in reports)
        if rows or failure is not None:
            _made(spans, query, number, reports, began=began, failure=failure)


def _made(
    spans: "Spans",
    query: str,
    number: int,
    reports: Sequence[BatchReport],
    *,
    began: int,
    failure: Exception | None,
) -> None:
    from opentelemetry.trace import SpanKind

    from outbox.tracing.spans import failed, links_of

    carried = (each.encode() for report in reports for each in report.contexts)
    span = spans.start(
        "process",
        "process",
        SpanKind.CONSUMER,
        attributes={
            names.QUERY: query,
            names.BATCH: number,
            names.COUNT: sum(each.counts.rows for each in reports),
        },
        links=links_of([(TRACEPARENT, each)] for each in carried),
        began=began,
    )
    if failure is not None:
        failed(span, failure)
    span.end()


def _ignored(_: Sequence[BatchReport]) -> None:
    """Do nothing."""
