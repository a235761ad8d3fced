"""The table `[kafka.identity]` of a settings file, as one property of a Kafka client."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from dovecote.process import strict_json
from dovecote.process.references import POINTERS, SECRET, resolve
from outbox.secrets import Read, Reread, fresh_all
from outbox.tokens.identity import KEY, encoded


def identity(given: object, environ: Mapping[str, str]) -> str:
    """Return the table of an identity as one property, which is read again if a secret can be."""
    whole, pointed = resolve(given, environ)
    if isinstance(whole, Reread) and pointed:
        return Reread(_WholeIdentity(whole.read))
    if isinstance(whole, str):
        return _whole(whole)
    if not isinstance(given, Mapping):
        raise ValueError(_NO_IDENTITY)  # noqa: TRY004  # pydantic turns only ValueError into a message
    table = {str(name): _of_identity(str(name), each, environ) for name, each in given.items()}
    changes = any(isinstance(each, Reread) for each in table.values())
    return Reread(_IdentityTable(table)) if changes else _encoded(table)


@dataclass(frozen=True, slots=True)
class _WholeIdentity:
    """A table that a file holds, or that a command prints."""

    read: Read

    def __call__(self, *, anew: bool) -> str:
        return _whole(self.read(anew=anew))


@dataclass(frozen=True, slots=True)
class _IdentityTable:
    """A table whose secrets are read again."""

    table: Mapping[str, object]

    def __call__(self, *, anew: bool) -> str:
        return _encoded(self.table, anew=anew)


_NO_IDENTITY = f'{KEY} must be a table, such as [kafka.{KEY}] with provider = "oidc"'


def _whole(text: str) -> str:
    """Return a whole table that a variable, a file or a command holds, as JSON."""
    try:
        table = strict_json.loads(text)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise ValueError(_NO_IDENTITY)  # noqa: TRY004  # as above
    return _encoded(table)


def _encoded(table: Mapping[str, object], *, anew: bool = False) -> str:
    try:
        return encoded(fresh_all(table, anew=anew))
    except ValueError as error:
        msg = f"{KEY}: {error}"
        raise ValueError(msg) from None


def _of_identity(name: str, given: object, environ: Mapping[str, str]) -> object:
    try:
        value, pointed = resolve(given, environ)
    except ValueError as error:
        msg = f"{KEY}.{name}: {error}"
        raise ValueError(msg) from None
    if SECRET.search(name) and not pointed:
        msg = f"{KEY}.{name} is a secret: write {POINTERS} in its place"
        raise ValueError(msg)
    if not pointed or type(value) is not str or value[:1] != "{":
        return value
    try:
        return strict_json.loads(value)  # a variable holds a table as JSON
    except json.JSONDecodeError:
        return value
