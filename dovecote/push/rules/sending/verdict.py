"""Decide the result for a record from its endpoint's answer, or from the lack of one."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal, NamedTuple, TypeAlias

from dedup.rules.policies.results import Dead, Done, Early, Retry

_SECONDS = re.compile(r"\d{1,10}")
_GONE = 410
_LIMITED = 429
_A_MOMENT = 1e9
"""A larger number in `RateLimit-Reset` counts from 1970."""
_OVERLOADED = frozenset({408})
# Another attempt for the same record is still at work.
_CONFLICT = 409
DONE = Done()
"""The result of success."""


class Answered(NamedTuple):
    """The endpoint answered."""

    status: int
    retry_after: str | None = None
    """The header, unparsed."""
    date: str | None = None
    """The header, unparsed: what the endpoint's clock says."""
    reset: str | None = None
    """`RateLimit-Reset`, or a header like it, unparsed."""


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The endpoint did not answer, or not in time."""

    error: str


@dataclass(frozen=True, slots=True)
class Disable:
    """The endpoint wants nothing more, ever: the subscription ends here, the record unsent."""

    reason: str


Shown: TypeAlias = Literal["success", "overload", "failure", "limited", "refusal", "nothing"]
"""
An outcome shows this about the endpoint.

`overload`: it is away or has too much to do. `failure`: it is there, and takes nothing for now,
because a path, a secret or a rule is wrong. `limited`: it takes records, but fewer a second.
`refusal`: an answer about one record. `nothing`: no request was sent, or the answer says no more.
"""

Outcome: TypeAlias = Answered | NotAnswered
Verdict: TypeAlias = Done | Retry | Dead | Disable


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A subscription's rules for answers other than success."""

    is_dead: Callable[[int], bool]
    """Returns whether a status makes the record a dead letter at once."""

    obeys: bool = True
    """Whether 410 disables and `Retry-After` is obeyed; with a fixed delay neither."""

    longest_wait: timedelta = timedelta(hours=24)
    """The longest wait that an endpoint can demand."""


def judge(outcome: Outcome, rules: Rules, *, now: datetime) -> Verdict:
    """Return the result for a record; only 2xx is success."""
    match outcome:
        case Answered(status) if 200 <= status < 300:  # noqa: PLR2004  # what 2xx is
            return DONE
        case NotAnswered(error):
            return Retry(error)
        case Answered(status):
            if rules.obeys and status == _GONE:
                return Disable("the endpoint answered 410 Gone")
            if rules.is_dead(status):
                return Dead(described(status))
            after = asked_wait(outcome, rules, now=now)
            if rules.obeys and status == _LIMITED:
                return Early(described(status), after)
            return Retry(described(status), after)


def asked_wait(outcome: Outcome, rules: Rules, *, now: datetime) -> timedelta | None:
    """Return the wait that an answer asks for, at most the longest; None: it asks for none."""
    if not isinstance(outcome, Answered) or not rules.obeys:
        return None
    here = _moment(outcome.date) or now
    after = None if outcome.retry_after is None else retry_after(outcome.retry_after, now=here)
    if after is None and outcome.status == _LIMITED and outcome.reset is not None:
        after = _until_reset(outcome.reset, now=here)
    # A moment in the past may come from a clock that is slow: wait as the backoff says.
    return min(after, rules.longest_wait) if after else None


def retry_after(text: str, *, now: datetime) -> timedelta | None:
    """
    Return the wait in a `Retry-After` header, in seconds or as a date; None: it has none.

    `now` is the time on the endpoint's clock.
    """
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=int(text))
    due = _moment(text)
    return None if due is None else max(timedelta(0), due - now)


def _until_reset(text: str, *, now: datetime) -> timedelta | None:
    """Return the wait in a `RateLimit-Reset` header: seconds, or seconds since 1970."""
    text = text.strip()
    if not _SECONDS.fullmatch(text):
        return None
    seconds = float(text)
    if seconds > _A_MOMENT:
        seconds -= now.timestamp()
    return timedelta(seconds=max(0.0, seconds))


def _moment(text: str | None) -> datetime | None:
    """Return the moment in an HTTP date; None: it is none."""
    if text is None:
        return None
    try:
        found = parsedate_to_datetime(text.strip())
    except (ValueError, TypeError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def described(status: int) -> str:
    """Return a status in words: `503 Service Unavailable`."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    redirected = ", which is not followed" if 300 <= status < 400 else ""  # noqa: PLR2004  # what 3xx is
    return f"the endpoint answered {status} {phrase}".rstrip() + redirected


def shows(outcome: Outcome, rules: Rules) -> Shown:
    """Return what the outcome shows about the endpoint, whatever the record's result is."""
    if isinstance(outcome, NotAnswered):
        return "overload"
    status = outcome.status
    if 200 <= status < 300:  # noqa: PLR2004  # what 2xx is
        return "success"
    if status >= 500 or status in _OVERLOADED:  # noqa: PLR2004  # what 5xx is
        return "overload"
    if rules.obeys and status == _GONE:
        return "nothing"
    if rules.obeys and status == _LIMITED:
        return "limited"
    return "refusal" if status == _CONFLICT or rules.is_dead(status) else "failure"
