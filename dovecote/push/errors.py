"""Errors of requests to `dovecote push serve`."""

from outbox.errors import DovecoteError


class NoSuchSubscription(DovecoteError):
    """There is no subscription with that name."""


class Conflict(DovecoteError):
    """The request conflicts with the present state."""


class RequestRefused(DovecoteError):
    """These settings or this broker do not allow the request."""


class Away(DovecoteError):
    """The database or a broker does not answer: the same request may succeed later."""
