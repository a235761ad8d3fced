"""Secrets that are read again each time they are needed, because their files are replaced."""

import logging
from collections.abc import Callable, Mapping
from typing import Self, TypeVar, cast

V = TypeVar("V")

_log = logging.getLogger("dovecote.settings")


class Reread(str):
    """A text with its first value, and a way to read it again."""

    __slots__ = ("_last", "read")
    read: Callable[[], str]
    """Raises ValueError if the text cannot be read."""
    _last: str

    def __new__(cls, read: Callable[[], str]) -> Self:
        """Read it for the first time."""
        self = super().__new__(cls, read())
        self.read, self._last = read, str(self)
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as plain text: another machine may not have the file."""
        return str, (self._last,)

    def again(self) -> str:
        """Return its current text, or the last one that was read while it cannot be read."""
        try:
            self._last = self.read()
        except ValueError as error:
            # Perhaps it is being replaced: the server decides whether the last one is still valid.
            _log.warning("a secret is used as it was read before: %s", error)
        return self._last


def fresh(text: str) -> str:
    """Return a setting's current text if it came from a file."""
    return text.again() if isinstance(text, Reread) else text


def fresh_all(properties: Mapping[str, V]) -> dict[str, V]:
    """As `fresh`, for properties of a Kafka client."""
    return {
        name: cast(V, value.again()) if isinstance(value, Reread) else value
        for name, value in properties.items()
    }
