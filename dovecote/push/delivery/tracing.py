"""Make the span of each request, and the headers with which the endpoint continues its trace."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from opentelemetry.trace import Span

from dedup.rules.record import Record
from dedup.tracing.handling import about
from dovecote.push.rules.sending.request import Origin
from dovecote.push.rules.sending.verdict import Answered, NotAnswered
from outbox.tracing import conventions as names
from outbox.tracing.spans import (
    Spans,
    failed,
    headers_for,
    only_span,
    went_wrong,
    within,
)

_FIRST_ERROR = 400


class RequestSpans:
    """Makes the spans of one subscription's requests."""

    are_made = True

    def __init__(
        self, subscription: str, group: str, *, url: str, method: str, origin: Origin
    ) -> None:
        self._spans, self._method = Spans("push"), method
        self._common: names.Attributes = {
            names.METHOD: method,
            names.URL: _shown(url, origin),
            names.HOST: origin.host,
            names.PORT: origin.port,
            names.SYSTEM: "kafka",
            names.GROUP: group,
            names.SUBSCRIPTION: subscription,
        }

    def begin(self, record: Record, attempt: int) -> "RecordedRequest":
        """Begin the span of an attempt, a child of the span where the event comes from."""
        context, _ = within(record.headers)
        said: names.Attributes = {
            **self._common,
            names.DESTINATION: record.topic,
            names.PARTITION: str(record.partition),
        }
        if attempt > 1:
            said[names.RESENT] = attempt - 1
        span = self._spans.request(self._method, said, context)
        if span.is_recording():
            self._spans.tell(span, {**about(record, self._spans), names.ATTEMPT: attempt})
        return RecordedRequest(self._spans, span)


class RecordedRequest:
    """The span of one request; it has to be ended."""

    def __init__(self, spans: Spans, span: Span) -> None:
        self._spans, self._span = spans, span
        # Baggage is the service's own, and not for endpoints of others.
        self.headers: Sequence[tuple[str, str]] = [
            (name, value.decode()) for name, value in headers_for(only_span(span))
        ]
        """The headers that tell the endpoint of it."""

    def ended(self, answer: Answered | NotAnswered, became: str, detail: str) -> None:
        """End the span with the answer, and what became of the record."""
        span = self._span
        if span.is_recording():
            said: names.Attributes = {names.OUTCOME: became}
            if isinstance(answer, Answered):
                said[names.STATUS] = answer.status
                if answer.status >= _FIRST_ERROR:
                    went_wrong(span, str(answer.status), detail)
            else:
                went_wrong(span, "SendFailed", detail)
            self._spans.tell(span, said)
        span.end()

    def failed(self, error: BaseException) -> None:
        """End the span of a request that was not brought to its end."""
        failed(self._span, error)
        self._span.end()


def _shown(url: str, origin: Origin) -> str:
    """Return a URL without user, password and query, which may hold secrets or the value."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{origin.host_header}{parts.path or '/'}"
