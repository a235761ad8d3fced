"""Secrets that are read again each time they are needed, for files of them are replaced."""

from collections.abc import Callable, Mapping
from typing import Self


class Reread(str):
    """A text as it was at first, that knows how to be read anew."""

    __slots__ = ("_read",)
    _read: Callable[[], str]

    def __new__(cls, read: Callable[[], str]) -> Self:
        """Read it for the first time."""
        self = super().__new__(cls, read())
        self._read = read
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Travel as the text: elsewhere there may be no such file."""
        return str, (str(self),)

    def again(self) -> str:
        """Return it as it is now."""
        return self._read()


def fresh(text: str) -> str:
    """
    Return a setting as it is now, where it came from a file.

    Raises:
        BadSettings: the file cannot be read any more.
    """
    return text.again() if isinstance(text, Reread) else text


def fresh_all(properties: Mapping[str, str]) -> dict[str, str]:
    """As `fresh`, for properties of a Kafka client."""
    return {name: fresh(value) for name, value in properties.items()}
