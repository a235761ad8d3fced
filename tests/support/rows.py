"""Events as a capture hands them over."""

from collections.abc import Iterable

from relay.rules.row import VALUE, Row


def row(
    position: int, *, topic: str = "orders", key: bytes | None = b"k", value: bytes = b"v"
) -> Row:
    return (position, f"id-{position}", 0, topic, key, value, "T", "/s", None, None, None, None)


def numbers(rows: Iterable[Row]) -> list[int]:
    """Return the values, which are numbers."""
    return [int(each[VALUE] or b"") for each in rows]
