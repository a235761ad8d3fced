"""Deliver topics to HTTP endpoints."""

from typing import TYPE_CHECKING

from outbox.lazily import lazy

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

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Composer": "dovecote.push.rules.sending.request",
            "Form": "dovecote.push.rules.sending.request",
            "Signer": "dovecote.push.rules.sending.signing",
            "networks": "dovecote.push.rules.sending.addresses",
            "refusal": "dovecote.push.rules.sending.addresses",
            "signing_key": "dovecote.push.rules.subscription.sections",
        },
        extra="push",
    )
