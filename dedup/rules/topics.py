"""
Decide which topics the entries of `topics` mean: names, and patterns, which begin with `^`.

One engine reads all patterns, so the group's protocol makes no difference. Its run time is linear:
Python's own engine can take years for a short pattern, and blocks the whole process meanwhile.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

OURS = ("__", "dovecote.progress.", "dovecote.markers.", "dovecote.push.")
"""Beginnings of the names of Kafka's own topics and of ours: nobody means them by a pattern."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_COMMITS = "__consumer_offsets"


def is_pattern(entry: str) -> bool:
    """Return whether an entry is a pattern, and no name."""
    return entry.startswith("^")


def any_pattern(entries: Iterable[str]) -> bool:
    """Return whether any entry is a pattern."""
    return any(map(is_pattern, entries))


def problem(entries: Collection[str]) -> str | None:
    """Return why `entries` cannot be, or None."""
    for entry in entries:
        if is_pattern(entry):
            try:
                matcher(entry)
            except ValueError as error:
                return f"{entry!r} is not a regular expression: {error}"
        elif not _NAME.fullmatch(entry) or entry in {".", ".."}:
            return (
                f"{entry!r} is not a topic's name, which has at most 249 letters, digits, '.', "
                "'_' and '-'; a pattern begins with '^'"
            )
        elif entry == _COMMITS:
            return f"{entry} has a record for each commit of this group: reading it never ends"
    if len(set(entries)) != len(entries):
        return f"{next(each for each in entries if [*entries].count(each) > 1)!r} is there twice"
    return None


def reads_own(entries: Iterable[str], own: Mapping[str, str]) -> str | None:
    """
    Return which of its `own` topics a consumer would read by `entries`, and what to do.

    `own` says of each topic what it holds. None: it reads none of them.
    """
    for entry in entries:
        matches = matcher(entry) if is_pattern(entry) else entry.__eq__
        for topic, holds in own.items():
            if matches(topic):
                what, do = f"topic {topic!r}", "take it out"
                if is_pattern(entry):
                    what, do = f"the pattern {entry!r} takes in {topic!r}, which", "narrow it"
                return (
                    f"{what} holds {holds} of its own: it cannot read what it writes, for that "
                    f"would never end; {do}"
                )
    return None


def matched(entries: Iterable[str], there: Collection[str]) -> list[str]:
    """Return the topics that `entries` mean: names, and what their patterns match of `there`."""
    found: dict[str, None] = {}
    for entry in entries:
        if is_pattern(entry):
            matches = matcher(entry)
            named = (each for each in sorted(there) if not each.startswith(OURS) and matches(each))
            found.update(dict.fromkeys(named))
        else:
            found[entry] = None
    return [*found]


@lru_cache(maxsize=256)
def matcher(entry: str) -> Callable[[str], bool]:
    """
    Return a function that tests whether a name begins with what follows the `^` of `entry`.

    Raises:
        ValueError: it is not a pattern.
    """
    body = entry[1:]
    try:
        TypeAdapter(
            Annotated[str, Field(pattern=body)]
        )  # alone: `a)|(b` would be valid in brackets
        adapter = TypeAdapter(Annotated[str, Field(pattern=f"^(?:{body})")])
    except SchemaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(lines[-1].removeprefix("error: ")) from None

    def matches(name: str) -> bool:
        try:
            adapter.validate_python(name)
        except ValidationError:
            return False
        return True

    return matches
