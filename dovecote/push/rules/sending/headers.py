"""Write texts of a record into the headers of a request, where not every character may be."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import AnyStr
from urllib.parse import quote

from dedup.rules.identity import Identity

_PLAINLY = re.compile(r"[!#$&-~]*")  # allowed in a header as it is: no blank, no quote, no %
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_REMEMBERED = 200


def lines(headers: Sequence[tuple[str, str]]) -> str:
    """
    Return headers in the form in which they are sent.

    Raises:
        ValueError: a header would begin another line, and so be another header.
    """
    text = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        bad = next(name for name, value in headers if {"\r", "\n"} & {*name, *value})
        msg = f"header {bad!r} holds the end of a line"
        raise ValueError(msg)
    return text


def escaped(text: str) -> str:
    """Return an attribute in the form that CloudEvents has for HTTP headers."""
    return text if _PLAINLY.fullmatch(text) else quote(text, safe=_SAFE)


def printable(text: str) -> str:
    """Return text for a header, with characters percent-encoded that a header may not contain."""
    return text if text.isascii() and text.isprintable() else quote(text, safe=_SAFE + " ")


def remembering(write: Callable[[AnyStr], str]) -> Callable[[AnyStr], str]:
    """
    Return a pure function with its last results at hand.

    A long value rarely comes again, and a cache of such values could be of any size.
    """
    known = lru_cache(maxsize=4096)(write)

    def remembered(value: AnyStr) -> str:
        return known(value) if len(value) <= _REMEMBERED else write(value)

    return remembered


encoded: Callable[[str], str] = remembering(escaped)
"""As `escaped`, for a text that comes again."""

sendable: Callable[[bytes], str] = remembering(lambda value: escaped(value.decode()))
"""Returns the value of an attribute as `encoded` does, from its bytes."""

at_source: Callable[[bytes], str] = remembering(
    lambda source: escaped(Identity(source.decode(), "").name)
)
"""Returns the end of an event's name, encoded: `@` and its source."""

typed: Callable[[bytes], str] = remembering(
    lambda type_: f"Content-Type: {printable(type_.decode())}\r\n"
)
"""Returns the line of a content type."""
