"""What a handler says became of one record."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

from dedup.rules.policies import blame
from outbox.errors import DovecoteError
from outbox.event import HeaderValue


class NonRetriable(DovecoteError):
    """A handler raises it for a record that no later attempt could handle: same as `Dead`."""


class Unavailable(DovecoteError):
    """
    A handler raises it while something that it needs is away: a database, a service.

    In a consumer the record waits without having failed: an outage burns no attempt.
    """


class TakenOver(Unavailable):
    """The inbox raises it for a record whose partition another member has claimed since."""


class Keep(Enum):
    """The one value that is neither a key nor the absence of one."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""An output's key: the key of the record it comes from."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a handler writes in the record's place."""

    value: object
    """`bytes`, `str` or anything JSON can hold; None is a tombstone."""

    key: bytes | str | Keep | None = KEEP
    """Record key; None: a record without one."""

    headers: tuple[tuple[str, HeaderValue], ...] = ()
    """Headers of its own, in order."""


@dataclass(frozen=True, slots=True)
class Done:
    """Succeeded: wins its key."""

    outputs: tuple[Output, ...] | None = None
    """What goes on; None: the record itself, unchanged; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Again:
    """
    Succeeded, not finished: wins its key and goes round through the retry topic.

    That is no failure: it burns no attempt, and no number of rounds makes a dead letter.
    """

    after: timedelta
    """How long to wait before the next round."""

    def __post_init__(self) -> None:
        _require_wait(self.after)


@dataclass(frozen=True, slots=True)
class Skip:
    """Not for us: skipped with the reason `handler: …`; does not win its key."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Failed: try again later, which burns an attempt."""

    error: str

    after: timedelta | None = None
    """How long to wait; None: as the settings of the retries say."""

    def __post_init__(self) -> None:
        if self.after is not None:
            _require_wait(self.after)


@dataclass(frozen=True, slots=True)
class Dead:
    """Failed for good: a dead letter at once."""

    error: str


Result: TypeAlias = Done | Again | Skip | Retry | Dead


def failure(error: Exception) -> Retry | Dead:
    """
    Return the result that stands for an exception: `Dead` for `NonRetriable`, else `Retry`.

    It says where in the handler a foreign one was raised.
    """
    text = str(error)
    # Our own messages say it all; of a foreign one ("'amount'") the class is half the message.
    if not isinstance(error, DovecoteError) or not text:
        name = type(error).__name__
        text = f"{name}: {text}" if text else name
        if not isinstance(error, DovecoteError) and (place := blame.place(error)) is not None:
            text = f"{text} ({place})"
    return Dead(text) if isinstance(error, NonRetriable) else Retry(text)


def _require_wait(after: object) -> None:
    if not isinstance(after, timedelta):
        msg = f"after must be a timedelta, not {after!r}"
        raise TypeError(msg)
    if after < timedelta(0):
        msg = f"after must not be negative: {after}"
        raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Early(Retry):
    """The record is not due: it was not handled, and no attempt is burnt."""
