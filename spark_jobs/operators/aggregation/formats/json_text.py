"""JSON text that keeps every number, or is refused."""

from typing import Any

import orjson
from pydantic_core import from_json

from dedup.replay.trace import to_json


def loads(text: bytes | str) -> Any:  # noqa: ANN401  # JSON
    """
    Return the value of `text`; an integer keeps all its digits.

    Raises:
        ValueError: it is not JSON, or has a number that is too large for a float.
    """
    # Neither library does both: this one refuses 1e999, the other keeps integers of any size.
    orjson.loads(text)
    return from_json(text, cache_strings="keys")


def dumps(value: Any) -> bytes:  # noqa: ANN401  # JSON
    """
    Return `value` as JSON; it has no NaN and no infinity.

    Raises:
        ValueError, TypeError: JSON cannot hold it.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits, or what JSON cannot hold
        return to_json(value)
