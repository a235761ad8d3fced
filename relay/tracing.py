"""A span for each published batch, if OpenTelemetry is installed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from outbox.envelope import TRACEPARENT
from relay.rules.row import HEADER_NAMES, HEADER_VALUES, Row

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _INSTALLED = False
else:
    _INSTALLED = True

# The number that the SDK keeps by default.
_MOST_LINKS = 128


def publishing(outbox: str, rows: Sequence[Row]) -> AbstractContextManager[object]:
    """
    Return a span around the publishing of `rows`, linked to the traces of their events.

    There are at most 128 links, each to another trace. The span fails with what is raised in it.
    Rows may be added to `rows` before it ends.
    """
    return _span(outbox, rows) if _INSTALLED and rows else nullcontext()


@contextmanager
def _span(outbox: str, rows: Sequence[Row]) -> Iterator["trace.Span"]:
    known, links = len(rows), _links(rows)
    count = "messaging.batch.message_count"
    with trace.get_tracer("dovecote.relay").start_as_current_span(
        f"publish {outbox}",
        kind=trace.SpanKind.PRODUCER,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.operation.name": "publish",
            count: known,
            "dovecote.outbox": outbox,
        },
        links=list(links.values()),
    ) as span:
        try:
            yield span
        finally:
            if len(rows) > known:
                span.set_attribute(count, len(rows))
                for trace_id, link in _links(rows).items():
                    if trace_id not in links:
                        span.add_link(link.context)


def _links(rows: Sequence[Row]) -> Mapping[int, "trace.Link"]:
    # If nobody records spans, nobody has to look at every row.
    if isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
    ):
        return {}
    propagator = TraceContextTextMapPropagator()
    links: dict[int, trace.Link] = {}
    for traceparent in _traceparents(rows):
        context = trace.get_current_span(
            propagator.extract({TRACEPARENT: traceparent})
        ).get_span_context()
        if context.is_valid:
            links.setdefault(context.trace_id, trace.Link(context))
        if len(links) == _MOST_LINKS:
            break
    return links


def _traceparents(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        names = row[HEADER_NAMES]
        # The outbox stores it as the first of the headers.
        if names and names[0] == TRACEPARENT:
            yield row[HEADER_VALUES][0].decode("ascii", "replace")
