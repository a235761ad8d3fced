"""Read from an answer how much an endpoint takes, where it says so itself."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_NAMES = frozenset(
    {
        *("webhook-allowed-rate", "ratelimit-policy", "ratelimit"),
        *("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"),
    }
)
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)
LONGEST_WINDOW = 60
"""
Seconds of the longest window whose quota is spread evenly.

A quota of a day may be used up at once, so it says nothing about a second.
"""


class Quota(NamedTuple):
    """The numbers of an answer; None: it does not have that one."""

    per_second: float | None = None
    """Requests a second that the endpoint takes."""
    spent: int | None = None
    """The quota is used up, and in so many seconds there is a new one."""


NO_QUOTA = Quota()
"""An answer without numbers."""


def quota(headers: Mapping[str, str]) -> Quota:
    """
    Return what the headers of an answer say, by name in lower case.

    `WebHook-Allowed-Rate` is of CloudEvents webhooks, in requests a minute. The others are of the
    drafts of RateLimit header fields for HTTP, old and new.
    """
    if _NAMES.isdisjoint(headers):
        return NO_QUOTA
    rates = list(_rates(headers.get("ratelimit-policy", "")))
    rates += _rates(headers.get("ratelimit-limit", ""))
    if (allowed := _number(headers.get("webhook-allowed-rate"))) is not None:
        rates.append(allowed / 60)
    told = dict(_parameters(headers.get("ratelimit", "")))
    left = _number(headers.get("ratelimit-remaining") or told.get("r") or told.get("remaining"))
    reset = _number(headers.get("ratelimit-reset") or told.get("t") or told.get("reset"))
    return Quota(min(filter(None, rates), default=None), reset if left == 0 else None)


def _rates(text: str) -> Iterator[float]:
    """Yield the rates of the policies in a header: `10;w=1, 50;w=60`, or `"a";q=10;w=1`."""
    for policy in text.split(","):
        first, *_ = policy.split(";")
        told = dict(_parameters(policy))
        most, window = _number(told.get("q", first)), _number(told.get("w"))
        if most is not None and window and window <= LONGEST_WINDOW:
            yield most / window


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a header: `"a";r=50;t=30`, or `limit=100, remaining=50`."""
    for part in re.split("[;,]", text):
        name, _, value = part.partition("=")
        yield name.strip().lower(), value


def _number(text: str | None) -> int | None:
    """Return the number in a header's value; None: it is none."""
    text = (text or "").strip()
    return int(text) if _WHOLE.fullmatch(text) else None
