"""Secrets that are read again each time they are needed, for files of them are replaced."""

import logging
from collections.abc import Callable, Mapping
from typing import Self, TypeVar, cast

V = TypeVar("V")

_log = logging.getLogger("dovecote.settings")


class Reread(str):
    """A text as it was at first, that knows how to be read anew."""

    __slots__ = ("_last", "read")
    read: Callable[[], str]
    """Raises ValueError where it cannot be read."""
    _last: str

    def __new__(cls, read: Callable[[], str]) -> Self:
        """Read it for the first time."""
        self = super().__new__(cls, read())
        self.read, self._last = read, str(self)
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Travel as the text: elsewhere there may be no such file."""
        return str, (self._last,)

    def again(self) -> str:
        """Return it as it is now, or as it was last while it cannot be read."""
        try:
            self._last = self.read()
        except ValueError as error:
            # It is being replaced, perhaps: whether the last one still holds, the server says.
            _log.warning("a secret is used as it was read before: %s", error)
        return self._last


def fresh(text: str) -> str:
    """Return a setting as it is now, where it came from a file."""
    return text.again() if isinstance(text, Reread) else text


def fresh_all(properties: Mapping[str, V]) -> dict[str, V]:
    """As `fresh`, for properties of a Kafka client."""
    return {
        name: cast(V, value.again()) if isinstance(value, Reread) else value
        for name, value in properties.items()
    }
