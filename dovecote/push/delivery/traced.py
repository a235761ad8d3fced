"""Find out whether the requests of a subscription have spans."""

from importlib import import_module
from typing import TYPE_CHECKING

from dovecote.push.delivery import shape
from dovecote.push.rules.subscription.subscription import Subscription
from outbox.tracing.gate import is_on

if TYPE_CHECKING:
    from dovecote.push.delivery.tracing import RequestSpans


def request_spans(subscription: Subscription) -> "RequestSpans | None":
    """Return what makes the spans of requests; None if this process has no SDK set up."""
    if not is_on():
        return None
    form = shape.form(subscription)
    # Not imported: the library may not be installed.
    module = import_module("dovecote.push.delivery.tracing")
    made: RequestSpans = module.RequestSpans(
        subscription.id,
        subscription.group_id,
        url=form.url,
        method=form.method,
        origin=form.origin(),
    )
    return made
