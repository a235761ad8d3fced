"""Give an event the context in which it is written, or that of a span of its own."""

import os
from concurrent.futures import Future
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind

from outbox.event import Event, Headers
from outbox.tracing import conventions as names
from outbox.tracing import headers as read
from outbox.tracing.gate import is_on
from outbox.tracing.spans import (
    Spans,
    failed,
    headers_for,
    where_from,
)


def carried(event: Event) -> Headers:
    """
    Return the headers of an event that has no `traceparent` of its own.

    If spans are recorded, they name a span of the event's creation: those that handle the event
    are children of it, one for each event.
    """
    if not is_on() or not names.flag(os.environ, names.CREATION, default=True):
        return headers_for() if trace.get_current_span().get_span_context().is_valid else ()
    span = _spans().start(
        "create",
        "create",
        SpanKind.PRODUCER,
        destination=event.topic,
        attributes=_attributes(event),
    )
    span.end()
    return _headers(span)


class Sending:
    """The span of an event that is sent to Kafka directly; it ends with the promise."""

    def __init__(self, event: Event) -> None:
        own = None
        if event.traceparent is not None:
            own = where_from([(read.TRACEPARENT, event.traceparent.encode())])
        # The context of an event's own stays as it is; otherwise this span is where it comes from.
        self._span = _spans().start(
            "send",
            "send",
            SpanKind.PRODUCER if own is None else SpanKind.CLIENT,
            destination=event.topic,
            attributes=_attributes(event),
            links=() if own is None else [Link(own)],
        )
        self.headers: Headers = () if own is not None else _headers(self._span)

    def failed(self, error: BaseException) -> None:
        """End the span of an event that was not sent."""
        failed(self._span, error)
        self._span.end()

    def done(self, promise: "Future[Any]") -> None:
        """End the span, now that the promise is kept or broken."""
        if promise.cancelled():
            self._span.end()
        elif (error := promise.exception()) is not None:
            self.failed(error)
        else:
            self._span.set_attribute(names.VIA, str(promise.result()))
            self._span.end()


def _headers(span: trace.Span) -> Headers:
    """Return the headers for the context of a span, with the current baggage."""
    if not span.get_span_context().is_valid:
        return ()
    return headers_for(trace.set_span_in_context(span))


def _attributes(event: Event) -> names.Attributes:
    found: names.Attributes = {names.MESSAGE: str(event.id)[: names.MOST_TEXT]}
    if event.value is None:
        found[names.TOMBSTONE] = True
    if event.key is not None and _spans().shows_keys:
        key = event.key if isinstance(event.key, str) else event.key.decode(errors="replace")
        found[names.KEY] = key[: names.MOST_TEXT]
    return found


@cache
def _spans() -> Spans:
    return Spans("outbox")
