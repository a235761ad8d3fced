"""Write JSON that keeps every number, or refuse the value."""

from typing import Any

import orjson

from dedup.replay.trace import to_json


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
