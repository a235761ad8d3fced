"""Read JSON so that no number changes, or refuse it."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder
from pydantic_core import from_json

_decode = Decoder().decode

_LEVELS = 201
"""The levels of nesting that are read: the other parser reads no more, and encoders few more."""


def loads(text: bytes | str) -> Any:  # noqa: ANN401  # JSON
    """
    Return the value of `text` (RFC 8259); an integer keeps all its digits.

    Raises:
        ValueError: it is not JSON, nests too deeply, or has a number that is too large for a float
            (which other parsers take for infinity) or an integer of more than 4,300 digits. The
            message says where.
    """
    if len(text) <= 2 * _LEVELS or _opened(text) <= _LEVELS:
        try:
            return _decode(text)
        except (DecodeError, ValueError):
            pass  # the other parser says where it is wrong
    value = from_json(text, allow_inf_nan=False, cache_strings="keys")
    require_finite(value)
    return value


def loads_all(texts: Sequence[bytes]) -> list[Any] | None:
    """Return the value of each text, as `loads` does; None: one of them needs a closer look."""
    if max(map(len, texts), default=0) > 2 * _LEVELS and any(
        len(each) > 2 * _LEVELS and _opened(each) > _LEVELS for each in texts
    ):
        return None
    try:
        return list(map(_decode, texts))
    except (DecodeError, ValueError):
        return None


_PLAIN = {str, int, bool, type(None)}
"""The types of values that JSON can always hold."""


def _opened(text: bytes | str) -> int:
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{")
    return text.count("[") + text.count("{")


def require_finite(value: Any) -> None:  # noqa: ANN401  # JSON
    """
    Check that JSON can hold the numbers in `value`.

    Raises:
        ValueError: one is infinite or NaN; the message has its path.
    """
    found = _infinite(value)
    if found is not None:
        *path, number = found
        where = "".join(path).removeprefix(".") or "the value"
        msg = f"{where} is {number}, a number that JSON cannot hold"
        raise ValueError(msg)


def _infinite(value: Any) -> list[Any] | None:  # noqa: ANN401  # JSON
    """Return the steps to the first number that is infinite or NaN, and the number."""
    kind = value.__class__
    # Only the way back makes the path: made on the way there, it would be made for each value.
    if kind is dict:
        for name, each in value.items():
            if each.__class__ not in _PLAIN and (found := _infinite(each)) is not None:
                return [f".{name}", *found]
    elif kind is list:
        for number, each in enumerate(value):
            if each.__class__ not in _PLAIN and (found := _infinite(each)) is not None:
                return [f"[{number}]", *found]
    elif kind is float and not isfinite(value):
        return [value]
    return None
