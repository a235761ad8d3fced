"""The results that a handler returns for one record."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Final, TypeAlias

from dedup.rules.policies import blame
from dedup.rules.policies.departures import Exits, HandlerExited, HandlerLeft
from dedup.rules.policies.wording import MOST, plain
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
    """The type of the one value that is neither a key nor the absence of one."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""As an output's key: the key of the input record."""


@dataclass(frozen=True, slots=True)
class Output:
    """A record that a handler writes in place of its input."""

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
    """The records to pass on; None: the input itself, unchanged; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Again:
    """
    Succeeded, not finished: wins its key and goes round through the retry topic.

    This is not a failure: it burns no attempt, and no number of rounds makes a dead letter.
    """

    after: timedelta
    """How long to wait before the next round."""

    def __post_init__(self) -> None:
        _require_wait(self.after)


@dataclass(frozen=True, slots=True)
class Skip:
    """Not ours: skipped with the reason `handler: …`; does not win its key."""

    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", plain(self.reason))


@dataclass(frozen=True, slots=True)
class Retry:
    """Failed: try again later, which burns an attempt."""

    error: str

    after: timedelta | None = None
    """How long to wait; None: as the retry settings say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", plain(self.error))
        if self.after is not None:
            _require_wait(self.after)


@dataclass(frozen=True, slots=True)
class Dead:
    """Failed for good: a dead letter at once."""

    error: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", plain(self.error))


Result: TypeAlias = Done | Again | Skip | Retry | Dead


def failure(error: BaseException) -> Retry | Dead:
    """
    Return the result for an exception: `Dead` for `NonRetriable`, otherwise `Retry`.

    For an exception that is not ours, it names the place in the handler that raised it.
    """
    if isinstance(error, HandlerLeft):
        error = error.error
    text = plain(error)
    # Our own messages say everything; with other exceptions ("'amount'") the class is half the
    # message.
    if not isinstance(error, DovecoteError) or not text:
        name = type(error).__name__
        text = f"{name}: {text}" if text else name
        if not isinstance(error, DovecoteError) and (place := blame.place(error)) is not None:
            text = f"{text[: MOST - len(place) - 3]} ({place})"
    return Dead(text) if isinstance(error, NonRetriable) else Retry(text)


def result_of(answer: object) -> Result:
    """
    Return the result that a handler's answer stands for: `Done()` for None.

    A value that is no result is `Dead`: a further attempt would repeat the handler's effects, and
    end with the same value.

    Raises:
        Exits: the answer is a coroutine or a generator, so the handler's code has not run.
    """
    if answer is None:
        return Done()
    if isinstance(answer, Done | Again | Skip | Retry | Dead):
        return answer
    return no_result(answer)


def no_result(answer: object) -> Dead:
    """
    Return the result for an answer that is no result: another attempt would repeat the effects.

    Raises:
        Exits: the answer is a coroutine or a generator, so the handler's code has not run.
    """
    if isawaitable(answer) or isgenerator(answer) or isasyncgen(answer):
        if iscoroutine(answer):
            answer.close()
        msg = (
            f"the handler returned a {type(answer).__name__} instead of a result, so its code has "
            "not run; make it `async def` up to its outermost decorator, or an ordinary function "
            "without `yield`"
        )
        raise Exits(HandlerExited(msg))
    return Dead(
        f"the handler returned {_shown(answer)}, not Done, Again, Skip, Retry or Dead; let it "
        "return one of these, or nothing"
    )


def _shown(value: object) -> str:
    try:
        return plain(repr(value))[:200]
    except BaseException:  # noqa: BLE001  # its text is only part of a message
        return f"a {type(value).__name__}"


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

    scheduled: bool = False
    """Whether it waits for a time that was set for it; otherwise something is in its way."""
