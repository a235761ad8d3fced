"""
Settings that say where a secret is: in a variable, a file, a command's output or AWS.

The table `[kafka.identity]`, which has such settings, becomes one property of a Kafka client.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from dovecote.process import strict_json
from dovecote.process.settings.durations import duration
from outbox.secret_sources import EVERY_SECONDS, CommandText, FileText, RdsToken
from outbox.secrets import Read, Reread, fresh_all
from outbox.tokens.identity import KEY, encoded

# Every property that librdkafka or libpq keeps out of its own logs.
SECRET = re.compile(
    r"(password|secret|passphrase|key\.pem|jaas\.config|oauthbearer\.config"
    r"|scram_(client|server)_key)$",
    re.IGNORECASE,
)

UNSET = "environment variable"

POINTERS = '{ env = "NAME" }, { file = "PATH" } or { command = ["PROGRAM", …] }'
"""How an error says what to write in a secret's place."""

_KINDS = ({"env"}, {"file"}, {"command"}, {"command", "every"}, {"aws-rds"})
_PLACE = {"host": str, "port": int, "user": str, "region": str, "profile": str}
_PORT = 5432


def is_pointer(value: object) -> bool:
    """Return whether a value stands for one that is somewhere else."""
    return isinstance(value, dict) and set(value) in _KINDS


def resolve(value: object, environ: Mapping[str, str]) -> tuple[object, bool]:
    """
    Return the target of a pointer and True, or another value and False.

    Raises:
        ValueError: the target is missing, or the pointer is wrong.
    """
    match value:
        case {"env": str(name), **rest} if not rest:
            if name not in environ:
                msg = f"{UNSET} {name} is not set"
                raise ValueError(msg)
            return environ[name], True
        case {"file": str(path), **rest} if not rest:
            return Reread(FileText(Path(path))), True
        case {"command": words, **others}:
            given = {str(name): each for name, each in others.items()}
            return Reread(_command(words, given)), True
        case {"aws-rds": place, **rest} if not rest:
            return Reread(_token(place, environ)), True
        case _:
            return value, False


def with_place(parameters: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a table of libpq parameters in which a token of AWS knows host, port and user."""
    found = dict(parameters)
    match found.get("password"):
        case {"aws-rds": {**own}, **rest} if not rest:
            given = {each: resolve(found[each], environ)[0] for each in _GIVEN if each in found}
            found["password"] = {"aws-rds": {"port": _PORT, **given, **own}}
    return found


_GIVEN = ("host", "port", "user")


def _command(words: object, rest: Mapping[str, object]) -> Read:
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        msg = (
            'command must be a list of words, such as ["vault", "kv", "get", …]: no shell runs it'
        )
        raise ValueError(msg)
    if not words[0]:
        msg = "command: the first word is the program, and it is empty"
        raise ValueError(msg)
    if unknown := sorted(rest.keys() - {"every"}):
        msg = f"a command has `every` beside it, and no {unknown[0]!r}"
        raise ValueError(msg)
    every = duration(rest["every"]) if "every" in rest else timedelta(seconds=EVERY_SECONDS)
    return CommandText(tuple(words), cast(timedelta, every).total_seconds())


def _token(place: object, environ: Mapping[str, str]) -> Read:
    if not isinstance(place, Mapping):
        msg = 'aws-rds must be a table, such as { aws-rds = { region = "eu-central-1" } }'
        raise ValueError(msg)  # noqa: TRY004  # pydantic turns only ValueError into a message
    if unknown := sorted(place.keys() - _PLACE.keys()):
        msg = f"aws-rds: there is no such setting as {unknown[0]!r}"
        raise ValueError(msg)
    found = {name: str(resolve(value, environ)[0]) for name, value in place.items()}
    if missing := [name for name in ("host", "user") if not found.get(name)]:
        msg = f"aws-rds: {' and '.join(missing)} missing: give them in the table of `dsn`"
        raise ValueError(msg)
    port = found.pop("port", str(_PORT))
    if not port.isdecimal():
        msg = "aws-rds: port must be a number"
        raise ValueError(msg)
    return RdsToken(found.pop("host"), int(port), found.pop("user"), **found)


def pointer_to(text: object) -> dict[str, Any] | None:
    """Return the pointer that another machine can follow, None if the text is no such secret."""
    match text:
        case Reread(read=FileText(path)):
            return {"file": str(path)}
        case Reread(read=CommandText(words, every)):
            return {"command": list(words), "every": f"{every}s"}
        case _:
            return None


def arrived(pointer: Mapping[str, Any], last: str) -> Reread:
    """Return a secret that another machine has read as `last`; this one may not find it."""
    match pointer:
        case {"file": str(path)}:
            return Reread(FileText(Path(path)), last)
        case {"command": words, **rest}:
            return Reread(_command(words, rest), last)
        case _:
            raise AssertionError(pointer)


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
