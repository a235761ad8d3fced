"""Make spans by the conventions; imported only where an SDK is set up."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, Self

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outbox.tracing import conventions as names
from outbox.tracing import headers as read
from outbox.tracing.conventions import Attributes, Value

_log = logging.getLogger("dovecote.tracing")

Pairs = Iterable[tuple[str, bytes | None]]

_BAGGAGE = "baggage"
_W3C: Final = frozenset({read.TRACEPARENT, read.TRACESTATE, _BAGGAGE})
_ALWAYS: Final = TraceContextTextMapPropagator()
_warned: set[str] = set()


class Spans:
    """Makes the spans of one part of Dovecote; from any thread."""

    def __init__(self, part: str) -> None:
        self._tracer = trace.get_tracer(
            f"dovecote.{part}", _version(), schema_url=names.SCHEMA_URL
        )
        self._older = names.older(os.environ)
        self.shows_keys = names.flag(os.environ, names.KEYS, default=False)
        """Whether spans have the keys of records, which may name persons."""

    def start(
        self,
        operation: str,
        type_: str,
        kind: SpanKind,
        *,
        destination: str = "",
        attributes: Mapping[str, Value] | None = None,
        context: Context | None = None,
        links: Sequence[Link] = (),
        began: int | None = None,
    ) -> Span:
        """
        Return a new span of a messaging operation; the caller ends it.

        `context` has the parent; without one, the current context has it. `began` is in
        nanoseconds since 1970, by default now.
        """
        said: Attributes = {
            names.SYSTEM: "kafka",
            names.OPERATION: operation,
            names.KIND: type_,
            **(attributes or {}),
        }
        if destination:
            said[names.DESTINATION] = destination
        return self._tracer.start_span(
            f"{operation} {destination}" if destination else operation,
            context=context,
            kind=kind,
            attributes=self.named(said),
            links=links,
            start_time=began,
        )

    def request(self, method: str, attributes: Mapping[str, Value], context: Context) -> Span:
        """Return a new span of an HTTP request; the caller ends it."""
        return self._tracer.start_span(
            method, context=context, kind=SpanKind.CLIENT, attributes=self.named(attributes)
        )

    def named(self, attributes: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return attributes with the older names that the environment asks for as well."""
        if not self._older:
            return attributes
        return {
            **attributes,
            **{old: attributes[new] for new, old in self._older.items() if new in attributes},
        }

    def tell(self, span: Span, attributes: Mapping[str, Value]) -> None:
        """Add attributes to a span."""
        if span.is_recording():
            span.set_attributes(self.named(attributes))


class Within:
    """
    A block inside a span, which is the current one there, and ends with the block.

    It records an exception that is raised in it. It may await, and has to end in its own task.
    """

    __slots__ = ("_context", "_token", "span")

    def __init__(self, span: Span, context: Context | None = None) -> None:
        self.span, self._context = span, context

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self.span, self._context))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        if error is not None and self.span.is_recording():
            failed(self.span, error)
        # Python closes what a loop has left behind in another context.
        if kind is not GeneratorExit:
            contexts.detach(self._token)
        self.span.end()


def failed(span: Span, error: BaseException) -> None:
    """Record an exception in a span."""
    span.record_exception(error)
    went_wrong(span, type(error).__qualname__, str(error))


def went_wrong(span: Span, kind: str, description: str) -> None:
    """Say in a span that its operation has failed."""
    span.set_attribute(names.ERROR, kind)
    span.set_status(Status(StatusCode.ERROR, description[: names.MOST_TEXT]))


def where_from(headers: Pairs) -> SpanContext | None:
    """
    Return the span in a record's headers, as the process's propagators or W3C read it.

    It raises nothing, because headers may hold anything.
    """
    propagator = propagate.get_global_textmap()
    if not _is_w3c(propagator):
        found = trace.get_current_span(_extracted(propagator, headers, Context()))
        if (context := found.get_span_context()).is_valid:
            return context
    parent = read.parent(headers)
    return None if parent is None else _span_context(parent)


def within(headers: Pairs) -> tuple[Context, SpanContext | None]:
    """
    Return the current context with what a record's headers say, and the span there.

    A process's own propagators may put more into it than a span, such as baggage.
    """
    context = contexts.get_current()
    propagator = propagate.get_global_textmap()
    if not _is_w3c(propagator) or any(name == _BAGGAGE for name, _ in headers):
        context = _extracted(propagator, headers, context)
    found = where_from(headers)
    if found is None:
        return context, None
    return trace.set_span_in_context(trace.NonRecordingSpan(found), context), found


def links_of(many: Iterable[Pairs]) -> list[Link]:
    """Return links to the spans in the headers of records: one for each trace, 128 at most."""
    found: dict[int, Link] = {}
    for headers in many:
        context = where_from(headers)
        if context is not None and context.trace_id not in found:
            found[context.trace_id] = Link(context)
            if len(found) == names.MOST_LINKS:
                break
    return list(found.values())


def headers_for(context: Context | None = None) -> tuple[tuple[str, bytes], ...]:
    """
    Return the headers that carry a context: W3C's, and those of the process's propagators.

    `context` None: the current one.
    """
    carrier: dict[str, str] = {}
    _ALWAYS.inject(carrier, context)
    propagator = propagate.get_global_textmap()
    try:
        propagator.inject(carrier, context)
    except Exception as error:  # noqa: BLE001  # somebody else's code must not break a record
        _say_once(propagator, error)
    return read.kept(carrier.items())


def only_span(span: Span | SpanContext) -> Context:
    """Return a context with a span and nothing else: baggage is not for everybody."""
    if isinstance(span, SpanContext):
        span = trace.NonRecordingSpan(span)
    return trace.set_span_in_context(span, Context())


@lru_cache(maxsize=8)
def _is_w3c(propagator: TextMapPropagator) -> bool:
    return read.TRACEPARENT in (fields := propagator.fields) and fields <= _W3C


def _extracted(propagator: TextMapPropagator, headers: Pairs, context: Context) -> Context:
    carrier = read.texts(headers, frozenset(propagator.fields))
    if not carrier:
        return context
    # Its own members are checked here; the library would log each one that is not valid.
    if read.TRACESTATE in carrier and not read.members(carrier[read.TRACESTATE].encode()):
        del carrier[read.TRACESTATE]
    try:
        return propagator.extract(carrier, context)
    except Exception as error:  # noqa: BLE001  # somebody else's code must not break a record
        _say_once(propagator, error)
        return context


def _say_once(propagator: TextMapPropagator, error: Exception) -> None:
    name = type(propagator).__qualname__
    if name not in _warned:
        _warned.add(name)
        _log.warning("propagator %s fails, so records do without it: %s", name, error)


def _span_context(parent: read.Parent) -> SpanContext:
    state = trace.TraceState(list(parent.state)) if parent.state else trace.DEFAULT_TRACE_STATE
    return SpanContext(
        parent.trace,
        parent.span,
        is_remote=True,
        trace_flags=trace.TraceFlags(parent.flags),
        trace_state=state,
    )


def _version() -> str | None:
    try:
        return version("dovecote")
    except PackageNotFoundError:
        return None
