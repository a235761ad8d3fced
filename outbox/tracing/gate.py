"""Find out whether anybody records spans here, without importing anything of OpenTelemetry."""

import os
import sys
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from outbox.event import Event, Headers
from outbox.tracing.conventions import DISABLED, flag

if TYPE_CHECKING:
    from outbox.tracing.spans import Spans

_API = "opentelemetry.trace"


def is_on() -> bool:
    """Return whether this process has an SDK that is set up."""
    trace = sys.modules.get(_API)
    # Another thread may be importing it right now.
    provider = getattr(trace, "get_tracer_provider", None)
    if trace is None or provider is None:
        return False
    nobody = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    return not isinstance(provider(), nobody) and not flag(os.environ, DISABLED, default=False)


def spans_of(part: str) -> "Spans | None":
    """
    Return what makes the spans of a part of Dovecote, such as `relay`; None if nobody records any.

    The answer holds for as long as the part runs: ask when it begins.
    """
    if not is_on():
        return None
    # Not imported: for most processes there are no spans, and a service may lack the library.
    made: Spans = import_module("outbox.tracing.spans").Spans(part)
    return made


class BegunSending(Protocol):
    """The span of an event that is sent to Kafka directly."""

    headers: Headers
    """The headers with which the event carries it; none if the event has a trace of its own."""

    def failed(self, error: BaseException) -> None: ...
    def done(self, promise: "Future[Any]") -> None: ...


def sending(event: Event) -> BegunSending | None:
    """Begin the span of an event that is sent directly; None if nobody records spans."""
    if not is_on() or not isinstance(event, Event):
        return None
    begun: BegunSending = import_module("outbox.tracing.creating").Sending(event)
    return begun


def carried(event: Event) -> Headers:
    """Return the headers with which an event carries the current trace; none if there is none."""
    if sys.modules.get(_API) is None:
        return ()
    found: Headers = import_module("outbox.tracing.creating").carried(event)
    return found
