"""
Decide which topics the entries of `source.topics` mean.

An entry is a topic's name, a shell pattern (`orders.*`), or one of both after a `!`, which takes
topics out of the patterns. A plain name is always read.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from dedup.rules.topics import OURS

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PATTERN = re.compile(r"([a-zA-Z0-9._*?-]|\[!?[a-zA-Z0-9._-]+\])+")
_PARTS = {"relay", "progress", "dead", "push", "markers"}
# Kafka writes to these for each batch that a job commits.
_ENDLESS = {"__consumer_offsets", "__transaction_state"}


def plain(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries that are names of topics."""
    return tuple(each for each in entries if _NAME.fullmatch(each))


def patterns(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries that take in topics by a pattern."""
    return tuple(each for each in entries if not _excludes(each) and not _NAME.fullmatch(each))


def problem(entries: Collection[str]) -> str | None:
    """Return why `entries` cannot be, or None."""
    excluded = [each[1:] for each in entries if _excludes(each)]
    for entry in (*plain(entries), *patterns(entries), *excluded):
        if not _NAME.fullmatch(entry) and not _is_pattern(entry):
            return (
                f"{entry!r} matches no topic: names have at most 249 letters, digits, '.', '_' "
                "and '-'; patterns have '*', '?' and '[…]', too, and are no regular expressions"
            )
        if entry in _ENDLESS:
            return f"{entry} has a record for each batch of this job: reading it never ends"
    if excluded and not patterns(entries):
        return f"'!{excluded[0]}' takes nothing out: no other entry is a pattern"
    for name in plain(entries):
        if name in excluded:
            return f"{name!r} is there by its name, and taken out as well: remove one of the two"
    return None


def entry_of(topic: str, entries: Collection[str]) -> str | None:
    """Return the entry that takes in `topic`: its name, or the first pattern; None: none does."""
    if not _NAME.fullmatch(topic):  # a record may name anything as its origin, even an entry
        return None
    if topic in entries:
        return topic
    if topic.startswith(OURS):
        return None
    if any(fnmatchcase(topic, each[1:]) for each in entries if _excludes(each)):
        return None
    return next((each for each in patterns(entries) if fnmatchcase(topic, each)), None)


def belongs(topic: str, entries: Collection[str]) -> bool:
    """Return whether `topic` is one that `entries` mean."""
    return entry_of(topic, entries) is not None


def matched(entries: Collection[str], there: Iterable[str]) -> list[str]:
    """Return which of the topics that are `there` come by a pattern alone, in order."""
    wanted = patterns(entries)
    found = (each for each in there if any(fnmatchcase(each, one) for one in wanted))
    return sorted(each for each in found if each not in entries and belongs(each, entries))


def unmatched(entries: Collection[str], there: Collection[str]) -> list[str]:
    """Return the patterns that take in none of the topics that are `there`."""
    rest = [each for each in entries if _excludes(each)]
    return [
        pattern
        for pattern in patterns(entries)
        if not any(belongs(topic, [pattern, *rest]) for topic in there)
    ]


def read_by_pattern(written: Iterable[str], entries: Sequence[str]) -> str | None:
    """Return which of the topics `written` a pattern takes in, and what to do; None: none."""
    for topic in written:
        entry = entry_of(topic, entries)
        if entry is not None and entry != topic:
            return (
                f"topic {topic!r} is written, and read by the pattern {entry!r}: its records "
                f'would never end. Add "!{topic}" to the topics that are read'
            )
    return None


def require_free(query: str) -> str:
    """
    Return the name of a query, which is a part of the names of its topics and transactional ids.

    Raises:
        ValueError: other parts of Dovecote have names that begin like that.
    """
    if (first := query.partition(".")[0]) in _PARTS:
        msg = f"a right on `dovecote.{first}.` would be a right on all that other parts name so"
        raise ValueError(msg)
    return query


def _excludes(entry: str) -> bool:
    return entry.startswith("!")


def _is_pattern(entry: str) -> bool:
    return _PATTERN.fullmatch(entry) is not None and any(each in entry for each in "*?[")
