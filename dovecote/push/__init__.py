"""Deliver topics to HTTP endpoints."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovecote.push.rules.sending.addresses import networks, refusal
    from dovecote.push.rules.sending.request import Composer, Form
    from dovecote.push.rules.sending.signing import Signer
    from dovecote.push.rules.subscription.sections import signing_key

__all__ = [
    "Composer",
    "Form",
    "Signer",
    "networks",
    "refusal",
    "signing_key",
]

_LAZY = {
    "Composer": "dovecote.push.rules.sending.request",
    "Form": "dovecote.push.rules.sending.request",
    "Signer": "dovecote.push.rules.sending.signing",
    "networks": "dovecote.push.rules.sending.addresses",
    "refusal": "dovecote.push.rules.sending.addresses",
    "signing_key": "dovecote.push.rules.subscription.sections",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever is asked for
    """Import a name when it is asked for: not everybody needs Kafka or Postgres."""
    if (module := _LAZY.get(name)) is not None:
        return getattr(import_module(module), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
