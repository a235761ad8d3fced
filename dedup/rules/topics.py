"""
Decide which topics the entries of `topics` mean: names, and patterns, which begin with `^`.

One engine reads all patterns, so the group's protocol makes no difference. Its run time is linear:
Python's own engine can take years for a short pattern, and blocks the whole process meanwhile. The
time is linear in a pattern's length with its repetitions written out, so that length has a limit.
The client gets names only: it would hand a pattern to the engine of the C library.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

OURS = (
    "__",
    "dovecote.progress.",
    "dovecote.markers.",
    "dovecote.push.",
    "dovecote.skips",
)
"""Beginnings of the names of Kafka's own topics and of ours: nobody means them by a pattern."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_COMMITS = "__consumer_offsets"
_MOST_WRITTEN_OUT = 500
_MOST_REMEMBERED = 100_000
# The parts of a pattern, as far as its length depends on them; any other is one character.
_PART = re.compile(
    r"\\(?:[pPxuU]\{[^}]*\}|.)|\(\?(?:P?<[^>]*>|[a-zA-Z-]*:?)|\{[^}]*\}?", re.DOTALL
)
# A bracket at the beginning of a class stands for itself.
_IN_CLASS = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|.)|\[\^?\]?|.", re.DOTALL)
_COUNT = re.compile(r"\{\s*(\d{0,9})\s*(?:,\s*(\d{0,9})\s*)?\}")


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
                return f"{entry!r} is no regular expression that can be taken: {error}"
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
        ValueError: it is not a pattern, or too long with its repetitions written out.
    """
    body = entry[1:]
    if (length := written_out(body)) > _MOST_WRITTEN_OUT:
        msg = (
            f"with its repetitions written out it has {length:,} parts, and at most "
            f"{_MOST_WRITTEN_OUT} are taken: use * or +, or smaller numbers in {{}}"
        )
        raise ValueError(msg)
    try:
        TypeAdapter(
            Annotated[str, Field(pattern=body)]
        )  # alone: `a)|(b` would be valid in brackets
        adapter = TypeAdapter(Annotated[str, Field(pattern=f"^(?:{body})")])
    except SchemaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(lines[-1].removeprefix("error: ")) from None

    known: dict[str, bool] = {}  # the same names are asked for again and again

    def matches(name: str) -> bool:
        found = known.get(name)
        if found is None:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            known[name] = found = _is_valid(adapter, name)
        return found

    return matches


def _is_valid(adapter: TypeAdapter[str], name: str) -> bool:
    try:
        adapter.validate_python(name)
    except ValidationError:
        return False
    return True


def written_out(pattern: str) -> int:
    """
    Return how many parts a regular expression has with its repetitions written out.

    A part is a character, a class, a group, `|`, or one of `*`, `+` and `?`. `(ab){3}` has 9.

    Raises:
        ValueError: it has comments (the flag `x`), or a repetition that is none.
    """
    sums, last, at = [0], 0, 0
    for part in _parts(pattern):
        match part[0]:
            case "(":
                if "x" in part.partition("<")[0]:
                    msg = "the flag x, which allows comments, is not taken"
                    raise ValueError(msg)
                sums.append(1)
                continue
            case ")" if len(sums) > 1:
                last = sums.pop()
                at = last
            case "{":
                at = last * (_times(part) - 1)
                last += at
            case "*" | "+" | "?":
                at = 1
                last += at
            case _:
                at = last = 1
        sums[-1] += at
    return sum(sums)


def _parts(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        found = _PART.match(pattern, at)
        end = at + 1 if found is None else found.end()
        if pattern[at] == "[":
            end = _end_of_class(pattern, at)
        yield pattern[at:end]
        at = end


def _end_of_class(pattern: str, begin: int) -> int:
    """Return where the class ends that begins with the bracket at `begin`."""
    depth = 0
    for found in _IN_CLASS.finditer(pattern, begin):
        depth += {"[": 1, "]": -1}.get(found[0][0], 0)
        if not depth:
            return found.end()
    return len(pattern)


def _times(count: str) -> int:
    """Return how often `{n}`, `{n,}` or `{n,m}` repeats at most, as far as it is written out."""
    found = _COUNT.fullmatch(count)
    said = [] if found is None else [int(each) for each in found.groups() if each]
    if not said:
        msg = "a repetition is {n}, {n,} or {n,m}"
        raise ValueError(msg)
    return max(1, *said)
