"""Secrets that are read again each time they are needed, because others replace them."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar, cast

V = TypeVar("V")

_log = logging.getLogger("dovecote.settings")


class Read(Protocol):
    """Where a secret comes from."""

    def __call__(self, *, anew: bool) -> str:
        """
        Return its current text; `anew`: a server has refused the last one.

        Raises:
            ValueError: it cannot be read.
        """


class Reread(str):
    """A text with its first value, and a way to read it again."""

    __slots__ = ("_last", "_may_lack", "read")
    read: Read
    _last: str
    _may_lack: bool

    def __new__(cls, read: Read, last: str | None = None) -> Self:
        """Read it for the first time, unless `last` is what another process has read."""
        self = super().__new__(cls, read(anew=False) if last is None else last)
        self.read, self._last, self._may_lack = read, str(self), last is not None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the text as it is now, and where it comes from if that can travel.

        Another machine reads it again if it can, and otherwise goes on with the text.
        """
        text = self.again()
        return (Reread, (self.read, text)) if _travels(self.read) else (str, (text,))

    def again(self, *, anew: bool = False) -> str:
        """Return its current text, or the last one that was read while it cannot be read."""
        try:
            self._last = self.read(anew=anew)
            self._may_lack = False
        except ValueError as error:
            # Perhaps it is being replaced: the server decides whether the last one is still valid.
            level = logging.DEBUG if self._may_lack else logging.WARNING
            _log.log(level, "a secret is used as it was read before: %s", error)
        return self._last

    def renewed(self, *, anew: bool = False) -> "Reread":
        """Return a text that is equal to the current one, and can be read again as well."""
        made = Reread(self.read, self.again(anew=anew))
        made._may_lack = self._may_lack  # of the same class
        return made


def _travels(read: Read) -> bool:
    return bool(getattr(read, "travels", False))


def fresh(text: str, *, anew: bool = False) -> str:
    """
    Return a setting's current text, if it is read again.

    `anew`: a server has refused the last one, so nothing that was kept will do.
    """
    return text.again(anew=anew) if isinstance(text, Reread) else text


def fresh_all(properties: Mapping[str, V], *, anew: bool = False) -> dict[str, V]:
    """As `fresh`, for properties of a Kafka client; what is read again can be read once more."""
    return {
        name: cast(V, value.renewed(anew=anew)) if isinstance(value, Reread) else value
        for name, value in properties.items()
    }


def mapped(text: str, change: Callable[[str], str]) -> str:
    """Return `change(text)`, which is read again if `text` is."""
    if not isinstance(text, Reread):
        return change(text)
    given = text

    def read(*, anew: bool) -> str:
        return change(given.again(anew=anew))

    return Reread(read)


def asked(
    given: str | Callable[[], str], what: str, check: Callable[[str], object] = lambda _: None
) -> str:
    """
    Return a text that a program gives, or the text of its function, which is called again.

    Raises:
        ValueError: as `check` does of a text that cannot be right, without quoting it.
    """
    if isinstance(given, str):
        _require(given, what, check)
        return given

    def read(*, anew: bool) -> str:  # noqa: ARG001  # the function decides what it keeps
        try:
            text = given()
        except Exception as error:
            # The message may quote the secret.
            msg = f"{what}: the function raised {type(error).__name__}"
            raise ValueError(msg) from error
        if not isinstance(text, str):
            msg = f"{what}: the function returned {type(text).__name__}, and no text"
            raise ValueError(msg)  # noqa: TRY004  # the kind of error that a source may raise
        if not text.strip():
            # A file may be half written; libpq would take this for a server on this machine.
            msg = f"{what}: the function returned an empty text"
            raise ValueError(msg)
        _require(text, what, check)
        return text

    return Reread(read)


def _require(text: str, what: str, check: Callable[[str], object]) -> None:
    """Refuse a text at which a client of Postgres or Kafka would end the thread that gives it."""
    if "\0" in text:
        msg = f"{what}: the text has a NUL character, which no secret has"
        raise ValueError(msg)
    try:
        text.encode()
        check(text)
    except UnicodeEncodeError:
        msg = f"{what}: the text has a surrogate character, which UTF-8 has no bytes for"
        raise ValueError(msg) from None
    except ValueError as error:
        msg = f"{what}: {error}"
        raise ValueError(msg) from None
