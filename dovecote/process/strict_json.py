"""JSON that people write: a key that stands twice is refused, so that neither is lost."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any


def loads(text: str | bytes) -> Any:  # noqa: ANN401  # whatever the text holds
    """
    Return what `text` holds.

    Raises:
        ValueError: it is not JSON, nests too deeply, or an object has a key twice; NaN and
            Infinity are not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=refuse)
    except RecursionError:
        msg = "it nests too deeply"
        raise ValueError(msg) from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counted.items() if count > 1)
        msg = f"the key {json.dumps(twice)} stands twice in one object"
        raise ValueError(msg)
    return found


def refuse(constant: str) -> None:
    """Raise a ValueError for NaN or Infinity, which the standard parser takes."""
    msg = f"{constant} is not JSON"
    raise ValueError(msg)
