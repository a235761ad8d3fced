"""Times of day as text, by the pattern letters of Java's DateTimeFormatter."""

import re
from datetime import UTC, time, timedelta, timezone, tzinfo
from typing import NamedTuple

from spark_jobs.operators.aggregation.triggers.zones import zone

_OFFSET = {
    "X": r"Z|[+-]\d\d(?:\d\d)?",
    "XX": r"Z|[+-]\d{4}",
    "XXX": r"Z|[+-]\d\d:\d\d",
    "x": r"[+-]\d\d(?:\d\d)?",
    "xx": r"[+-]\d{4}",
    "xxx": r"[+-]\d\d:\d\d",
    "Z": r"[+-]\d{4}",
    "ZZ": r"[+-]\d{4}",
    "ZZZ": r"[+-]\d{4}",
    "ZZZZZ": r"Z|[+-]\d\d:\d\d",
}
_OFFSET_LETTERS = {each[0] for each in _OFFSET}
_FIELDS = {
    "H": "hour of the day",
    "k": "hour, 1 to 24",
    "h": "hour, 1 to 12",
    "K": "hour, 0 to 11",
}
_KNOWN = "H k K h m s S a X x Z VV"
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)
_MICROSECOND_DIGITS = 6


class TimeOfDay(NamedTuple):
    """A time of day, with its zone if the text names one."""

    time: time
    zone: tzinfo | None


class TimePattern:
    """
    Reads times of day.

    Raises:
        ValueError: a letter does not occur in times of day.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._letters: list[str] = []
        found = "".join(self._piece(match) for match in _PIECE.finditer(pattern))
        if not {*self._letters} & {*_FIELDS}:
            msg = f'time pattern "{pattern}" has no hour ({_KNOWN} are known)'
            raise ValueError(msg)
        if {*self._letters} & {"h", "K"} and "a" not in self._letters:
            msg = f'time pattern "{pattern}" has an hour of half a day, but no "a" for which half'
            raise ValueError(msg)
        self._text = re.compile(found)

    def parse(self, text: str) -> TimeOfDay:
        """
        Return the time of day in `text`.

        Raises:
            ValueError: `text` does not match the pattern, or there is no such time.
        """
        match = self._text.fullmatch(text)
        if match is None:
            msg = f'"{text}" is not a time of the pattern "{self._pattern}"'
            raise ValueError(msg)
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        fraction = found.get("S", "")[:_MICROSECOND_DIGITS]
        return TimeOfDay(
            time(
                _hour(found),
                int(found.get("m", 0)),
                int(found.get("s", 0)),
                int(fraction.ljust(_MICROSECOND_DIGITS, "0")),
            ),
            _zone(found),
        )

    def _piece(self, match: re.Match[str]) -> str:
        quoted, letter = match[1], match[2]
        if quoted is not None:
            return re.escape(quoted.replace("''", "'") or "'")
        if letter is None:
            if match[0] in "[]{}#":
                msg = f'time pattern "{self._pattern}": "{match[0]}" is not supported'
                raise ValueError(msg)
            return re.escape(match[0])
        if letter in self._letters:
            msg = f'time pattern "{self._pattern}" has "{letter}" twice'
            raise ValueError(msg)
        if letter in _OFFSET_LETTERS and (other := {*self._letters} & _OFFSET_LETTERS):
            msg = (
                f'time pattern "{self._pattern}" has an offset twice: "{other.pop()}", "{letter}"'
            )
            raise ValueError(msg)
        self._letters.append(letter)
        return self._field(letter, match[0])

    def _field(self, letter: str, run: str) -> str:
        size = len(run)
        if letter in {*_FIELDS, "m", "s"} and size <= 2:  # noqa: PLR2004  # digits
            return rf"(?P<{letter}>\d{{{size if size == 2 else '1,2'}}})"  # noqa: PLR2004
        if letter == "S" and size <= 9:  # noqa: PLR2004  # nanoseconds
            return rf"(?P<S>\d{{{size}}})"
        if run == "a":
            return "(?P<a>AM|PM|am|pm)"
        if run in _OFFSET:
            return f"(?P<offset>{_OFFSET[run]})"
        if run == "VV":
            return r"(?P<zone>[A-Za-z0-9_+\-/]+)"
        msg = (
            f'time pattern "{self._pattern}": "{run}" is not of a time of day ({_KNOWN} are known)'
        )
        raise ValueError(msg)


def _hour(found: dict[str, str]) -> int:
    afternoon = 12 if found.get("a", "").upper() == "PM" else 0
    if "H" in found:
        return int(found["H"])
    if "k" in found:
        hour = _within(found["k"], 1, 24)
        return hour % 24
    if "h" in found:
        return _within(found["h"], 1, 12) % 12 + afternoon
    return _within(found["K"], 0, 11) + afternoon


def _within(text: str, low: int, high: int) -> int:
    if not low <= int(text) <= high:
        msg = f"hour {text} is not within {low} and {high}"
        raise ValueError(msg)
    return int(text)


def _zone(found: dict[str, str]) -> tzinfo | None:
    if "zone" in found:
        return zone(found["zone"])
    text = found.get("offset")
    if text is None:
        return None
    if text == "Z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59 or hours > 18:  # noqa: PLR2004  # as Java has it
        msg = f"there is no offset {text}"
        raise ValueError(msg)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)
