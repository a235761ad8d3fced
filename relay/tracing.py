"""A span for each published batch, if the process records spans."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from outbox.envelope import TRACEPARENT
from outbox.tracing import conventions as names
from outbox.tracing.gate import spans_of
from relay.rules.row import HEADER_NAMES, HEADER_VALUES, TOPIC, Row

if TYPE_CHECKING:
    from outbox.tracing.spans import Spans


SEVERAL = "*"
"""In the place of a topic where a second one has joined the batch of the first."""


def publishing(outbox: str, rows: Sequence[Row]) -> AbstractContextManager[object]:
    """
    Return a span around the publishing of `rows`, linked to the traces of their events.

    There are at most 128 links, each to another trace. The span fails with what is raised in it.
    Rows may be added to `rows` before it ends.
    """
    if not rows or (spans := spans_of("relay")) is None:
        return nullcontext()
    return _span(spans, outbox, rows)


@contextmanager
def _span(spans: "Spans", outbox: str, rows: Sequence[Row]) -> Iterator[object]:
    # Only now: a relay without spans needs nothing of this.
    from opentelemetry.trace import SpanKind

    from outbox.tracing.spans import Within, links_of

    known, links = len(rows), links_of(_headers(rows))
    span = spans.start(
        "send",
        "send",
        # Events come with their contexts, and this one is given to none of them.
        SpanKind.CLIENT,
        destination=_only_topic(rows),
        attributes={names.COUNT: known, names.OUTBOX: outbox},
        links=links,
    )
    with Within(span):
        try:
            yield span
        finally:
            if len(rows) > known and span.is_recording():
                _joined(spans, span, rows, {link.context.trace_id for link in links})


def _joined(spans: "Spans", span: object, rows: Sequence[Row], linked: set[int]) -> None:
    """Add to a span what has joined its batch since it began."""
    from opentelemetry.trace import Span

    from outbox.tracing.spans import links_of

    if not isinstance(span, Span):
        return
    spans.tell(span, {names.COUNT: len(rows)})
    for link in links_of(_headers(rows)):
        if link.context.trace_id not in linked:
            span.add_link(link.context)
    if not _only_topic(rows):
        # A span that began with one topic has got another, and cannot forget the first.
        span.update_name("send")
        spans.tell(span, {names.DESTINATION: SEVERAL})


def _only_topic(rows: Sequence[Row]) -> str:
    """Return the topic of all rows; empty if they have several."""
    topics = {row[TOPIC] for row in rows}
    return topics.pop() if len(topics) == 1 else ""


def _headers(rows: Iterable[Row]) -> Iterator[list[tuple[str, bytes | None]]]:
    """Return the headers in which events carry their trace."""
    for row in rows:
        names_of = row[HEADER_NAMES]
        # The outbox stores it as the first of the headers.
        if names_of and names_of[0] == TRACEPARENT:
            yield list(zip(names_of, row[HEADER_VALUES], strict=False))
