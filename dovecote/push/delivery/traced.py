"""Find out whether the requests of a subscription have spans."""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from dedup.rules.record import Record
from dovecote.push.delivery import shape
from dovecote.push.rules.sending.verdict import Answered, NotAnswered
from dovecote.push.rules.subscription.subscription import Subscription
from outbox.tracing.gate import is_on


class RequestSpan(Protocol):
    """The span of one request, which has to be ended."""

    headers: Sequence[tuple[str, str]]
    """The headers that tell the endpoint of it."""

    def ended(self, answer: Answered | NotAnswered, became: str, detail: str) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class MakesRequestSpans(Protocol):
    """Begins the span of each attempt."""

    are_made: bool
    """Whether there are spans."""

    def begin(self, record: Record, attempt: int) -> RequestSpan: ...


class _NoSpan:
    """Stands for the span of a request that has none."""

    headers: Sequence[tuple[str, str]] = ()

    def ended(self, answer: Answered | NotAnswered, became: str, detail: str) -> None:
        """Do nothing."""

    def failed(self, error: BaseException) -> None:
        """Do nothing."""


NO_SPAN: RequestSpan = _NoSpan()


class _NoSpans:
    are_made = False

    def begin(self, record: Record, attempt: int) -> RequestSpan:  # noqa: ARG002  # as others
        return NO_SPAN


def request_spans(subscription: Subscription) -> MakesRequestSpans:
    """Return what makes the spans of requests, if this process has an SDK that is set up."""
    if not is_on():
        return _NoSpans()
    form = shape.form(subscription)
    # Not imported: the library may not be installed.
    module = import_module("dovecote.push.delivery.tracing")
    made: MakesRequestSpans = module.RequestSpans(
        subscription.id,
        subscription.group_id,
        url=form.url,
        method=form.method,
        origin=form.origin(),
    )
    return made
