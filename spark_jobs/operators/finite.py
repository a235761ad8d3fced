"""Find numbers that JSON cannot hold: a parser makes infinity of 1e999, and scripts have NaN."""

import math
from typing import Any

PLAIN = {str, int, bool, type(None)}
"""The types of values that JSON can always hold."""


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
            if each.__class__ not in PLAIN and (found := _infinite(each)) is not None:
                return [f".{name}", *found]
    elif kind is list:
        for number, each in enumerate(value):
            if each.__class__ not in PLAIN and (found := _infinite(each)) is not None:
                return [f"[{number}]", *found]
    elif kind is float and not math.isfinite(value):
        return [value]
    return None
