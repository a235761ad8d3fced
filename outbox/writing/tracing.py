"""The service's current trace, if it uses OpenTelemetry."""

import sys


def current_traceparent() -> str | None:
    """Return the W3C `traceparent` of the current span; None if there is none."""
    # Not imported: if nobody has loaded the API, there is no current span.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"
