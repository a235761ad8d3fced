"""Find numbers that JSON cannot hold: a parser makes infinity of 1e999, and scripts have NaN."""

import math
from collections.abc import Iterator
from typing import Any

PLAIN = {str, int, bool, type(None)}
"""The types of values that JSON can always hold."""


def require_finite(value: Any) -> None:  # noqa: ANN401  # JSON
    """
    Check that JSON can hold the numbers in `value`.

    Raises:
        ValueError: one is infinite or NaN; the message has its path.
    """
    for path, found in _infinite(value, ""):
        msg = f"{path or 'the value'} is {found}, a number that JSON cannot hold"
        raise ValueError(msg)


def _infinite(value: Any, path: str) -> Iterator[tuple[str, float]]:  # noqa: ANN401  # JSON
    kind = value.__class__
    if kind is dict:
        for name, each in value.items():
            if each.__class__ not in PLAIN:
                yield from _infinite(each, f"{path}.{name}" if path else name)
    elif kind is list:
        for number, each in enumerate(value):
            if each.__class__ not in PLAIN:
                yield from _infinite(each, f"{path}[{number}]")
    elif kind is float and not math.isfinite(value):
        yield path, value
