"""Decide whether the members of a group have all partitions between them."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

Partition: TypeAlias = tuple[str, int]

_MOST_SAID = 3


def unread(partitions: Iterable[Partition], members: Sequence[Collection[Partition]]) -> str:
    """
    Return which partitions no member has, empty if each has one.

    A group that shows none of its members shows nothing: brokers describe groups of one protocol.
    """
    taken = {each for member in members for each in member}
    free = sorted(set(partitions) - taken)
    if not free or not members:
        return ""
    some = ", ".join(f"{topic}/{number}" for topic, number in free[:_MOST_SAID])
    more = f" and {len(free) - _MOST_SAID} more" if len(free) > _MOST_SAID else ""
    return f"no member of its group has {some}{more}: do all members read the same topics?"
