"""The answer of a provider of tokens, and the time to ask it again."""

import base64
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# A provider that fails is asked again after this many seconds, then after twice as many.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# A token that lives shorter than this is not renewed more often.
_SHORTEST_LIFE = 1.0
# A token that is valid for ever is renewed all the same: its provider may take it back, and no
# thread can wait for ever.
_LONGEST_LIFE = 86_400.0
# librdkafka asks again after this part of what it takes for the rest of a token's life.
_CLIENT_PART = 0.8
# It looks once a second whether to ask.
_AFTER_RENEWAL, _SOON = 0.5, 2.0
# The client in C would take a part of it for the end.
_PLAIN = range(0x20, 0x7F)


class TokenRefused(Exception):
    """The provider knows us and gives no token, or does not know us: waiting does not mend it."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token for Kafka; its text is in no repr."""

    value: str = field(repr=False)
    expires: float
    """In seconds since 1970."""
    principal: str = ""
    """The name of its owner, for the client's log."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions, such as `logicalCluster`."""


Ask: TypeAlias = Callable[[], Token]
"""Asks a provider for a token; raises `TokenRefused`, or anything else for a passing failure."""


def taken(answer: object, now: float) -> Token:
    """
    Return what a provider answers as a token: a `Token`, or a tuple with the same fields.

    Raises:
        ValueError: it is neither, has expired or never does; the message does not quote it.
    """
    if isinstance(answer, tuple):
        try:
            answer = Token(*answer)
        except TypeError:
            answer = None
    match answer:
        case Token(value=str(value), expires=float() | int(), principal=str()) if value:
            pass
        case _:
            msg = "the answer is no token, expiry in seconds, principal and extensions"
            raise ValueError(msg)
    if not all(ord(each) in _PLAIN for each in value):
        msg = "the token has characters that SASL does not take"
        raise ValueError(msg)
    if (wrong := extensions_problem(answer.extensions)) is not None:
        raise ValueError(wrong)
    # An integer may be too large for a float, and a comparison takes it all the same.
    if not abs(answer.expires) <= sys.float_info.max:
        msg = "the token's expiry is no time"
        raise ValueError(msg)
    if answer.expires <= now:
        msg = "the token has expired already: is a clock wrong?"
        raise ValueError(msg)
    return answer


def extensions_problem(extensions: object) -> str | None:
    """Return why these are no SASL extensions, or None."""
    if not isinstance(extensions, Mapping):
        return 'extensions must be a table, such as { logicalCluster = "lkc-1" }'
    for name, value in extensions.items():
        is_name = isinstance(name, str) and name.isascii() and name.isalpha() and name != "auth"
        if not is_name:
            return f"extension {name!r}: its name must have letters only, and not be `auth`"
        if not isinstance(value, str) or not all(ord(each) in _PLAIN for each in value):
            return f"extension {name!r}: its value must be text of printable ASCII characters"
    return None


def renewal(token: Token, obtained: float) -> float:
    """
    Return when to renew a token: after half of its life, so that a failure costs nothing.

    A life of more than a day counts as a day.
    """
    return obtained + min(max(token.expires - obtained, _SHORTEST_LIFE), _LONGEST_LIFE) / 2


def pause(failures: int) -> float:
    """Return how many seconds to wait after so many failures in a row."""
    return float(min(_FIRST_PAUSE * 2 ** min(failures - 1, 16), _LONGEST_PAUSE))


def given_until(renewed_at: float, now: float) -> float:
    """
    Return the expiry that a client is given with a token which is renewed at `renewed_at`.

    It lets the client ask again right after that; by itself, it would ask when the old token is
    about to expire. If the provider fails, it asks again soon: after an error it would wait ten
    seconds. The broker decides whether it still takes the token.
    """
    wait = max(renewed_at - now + _AFTER_RENEWAL, _SOON)
    return now + wait / _CLIENT_PART


def claims(token: str) -> Mapping[str, object]:
    """Return what a JSON web token says, unverified; nothing if it is none."""
    parts = token.split(".")
    try:
        body = parts[1] + "=" * (-len(parts[1]) % 4)
        found = json.loads(base64.urlsafe_b64decode(body))
    except (IndexError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
