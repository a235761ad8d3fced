"""What can be wrong with what somebody asks of `dovecote push`."""

from outbox.errors import DovecoteError


class NoSuchSubscription(DovecoteError):
    """There is no subscription of that name."""


class Conflict(DovecoteError):
    """What is asked for does not go with what is there."""


class Refused(DovecoteError):
    """What is asked for cannot be done with these settings, or by this broker."""


class Away(DovecoteError):
    """The database or a broker does not answer: the same request may succeed later."""
