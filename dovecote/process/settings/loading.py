"""
Load the settings of one process from a TOML file and the environment, which overrides the file.

Unknown fields are errors. A pointer such as `{ env = "NAME" }` stands for a value of any field.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dovecote.process import strict_json
from dovecote.process.settings.explaining import Given, explain
from dovecote.process.settings.fields import fields_of, is_open
from dovecote.process.settings.references import UNSET, is_pointer, resolve
from dovecote.process.settings.values import OrText
from outbox.errors import BadSettings

M = TypeVar("M", bound=BaseModel)


def load(model: type[M], file: Path | None, *, prefix: str, environ: Mapping[str, str]) -> M:
    """
    Return the settings in `file`, overridden by `environ`.

    `PREFIX_HTTP__PORT` sets `port` in the table `http`. In a table of Kafka properties,
    underscores in the variable's name stand for dots.

    Raises:
        BadSettings: the file cannot be read, or a setting is missing, unknown or impossible.
    """
    origin = f"{file} and {prefix}_*" if file is not None else f"{prefix}_*"
    try:
        return _load(model, file, origin, prefix=prefix, environ=environ)
    except RecursionError:
        msg = f"bad settings ({origin}): a table or list nests too deeply"
        raise BadSettings(msg) from None


def _load(
    model: type[M], file: Path | None, origin: str, *, prefix: str, environ: Mapping[str, str]
) -> M:
    data = _read(file) if file is not None else {}
    try:
        for path, name in _from_environment(prefix, environ):
            _set(data, path, {"env": name})
        return model.model_validate(_plain(model, data, environ), context={"environ": environ})
    except ValidationError as error:
        given = Given(model, data, file, prefix)
        raise BadSettings(explain(origin, error, given)) from None
    except _Impossible as error:
        msg = f"bad settings ({origin}):\n  {error}"
        raise BadSettings(msg) from None


class _Impossible(Exception):
    """A setting that never reaches the model; the message begins with its path."""


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise BadSettings(msg) from error
    except ValueError as error:  # also of a number with thousands of digits
        msg = f"{file} is not TOML: {error}"
        raise BadSettings(msg) from error


def _from_environment(prefix: str, environ: Mapping[str, str]) -> list[tuple[list[str], str]]:
    start = f"{prefix}_"
    return [
        (name.removeprefix(start).lower().split("__"), name)
        for name in sorted(environ)
        if name.startswith(start)
    ]


def _set(data: dict[str, Any], path: list[str], value: dict[str, str]) -> None:
    table: Any = data
    for depth, part in enumerate(path[:-1], 1):
        table = table.setdefault(part, {})
        where = ".".join(path[:depth])
        if isinstance(table, dict) and table.keys() == {"env"} and is_pointer(table):
            msg = (
                f"{where}: {table['env']} sets all of it, and {value['env']} a field in it: "
                "set one of the two"
            )
            raise _Impossible(msg)
        if not isinstance(table, dict) or is_pointer(table):
            msg = f"{where}: not a table, but {value['env']} sets a field in it"
            raise _Impossible(msg)
    table[path[-1]] = value


def _plain(
    model: type[BaseModel], data: Mapping[str, Any], environ: Mapping[str, str], *path: str
) -> dict[str, Any]:
    """Replace pointers by their text in ordinary fields, and by the table of a whole one."""
    fields = fields_of(model)
    return {
        name: _of_field(fields[name], value, environ, (*path, name)) if name in fields else value
        for name, value in data.items()
    }


def _of_field(
    field: FieldInfo, value: object, environ: Mapping[str, str], path: tuple[str, ...]
) -> object:
    if is_open(field):
        return _dotted(_whole(value, environ, path))
    return _of_type(field.annotation, value, environ, path, hidden=not field.repr)


def _of_type(
    wanted: Any,  # noqa: ANN401  # any annotation
    value: object,
    environ: Mapping[str, str],
    path: tuple[str, ...],
    *,
    hidden: bool,
) -> object:
    """As `_plain`, for a value of this type; what is hidden reads its own pointers later."""
    takes_text = False
    while get_origin(wanted) is Annotated:
        for mark in wanted.__metadata__:
            takes_text |= isinstance(mark, OrText)
            hidden |= isinstance(mark, FieldInfo) and not mark.repr
        wanted = get_args(wanted)[0]
    is_model = isinstance(wanted, type) and issubclass(wanted, BaseModel)
    if is_model or (hidden and get_origin(wanted) is dict):
        value = _whole(value, environ, path, takes_text=takes_text)
    elif not hidden and is_pointer(value):
        try:
            value = _literal(str(resolve(value, environ)[0]))
        except ValueError as error:
            msg = f"{'.'.join(path)}: {error}"
            raise _Impossible(msg) from None
    if is_model:
        return value if not isinstance(value, dict) else _plain(wanted, value, environ, *path)
    return _inside(wanted, value, environ, path, hidden=hidden)


def _inside(
    wanted: Any,  # noqa: ANN401  # as above
    value: object,
    environ: Mapping[str, str],
    path: tuple[str, ...],
    *,
    hidden: bool,
) -> object:
    """Replace pointers within a table of tables, a list of them, or one of several kinds."""
    arguments = get_args(wanted)
    match value:
        case {**members} if get_origin(wanted) is dict:
            return {
                name: _of_type(arguments[1], each, environ, (*path, str(name)), hidden=hidden)
                for name, each in members.items()
            }
        case {**members} if get_origin(wanted) in {Union, UnionType}:
            found: object = members
            for kind in arguments:
                found = _of_type(kind, found, environ, path, hidden=hidden)
            return found
        case [*items] if get_origin(wanted) is tuple:
            return [
                _of_type(arguments[0], each, environ, (*path, str(number)), hidden=hidden)
                for number, each in enumerate(items)
            ]
        case _:
            return value


def _whole(
    value: object, environ: Mapping[str, str], path: tuple[str, ...], *, takes_text: bool = False
) -> object:
    """Return the table that a variable holds as JSON; return another value unchanged."""
    match value:
        case {"env": str(name), **rest} if not rest:
            pass
        case _:
            return value
    text = environ.get(name, "").strip()
    if takes_text and not text.startswith("{"):
        return value
    try:
        table = strict_json.loads(text) if name in environ else None
        why = f"{UNSET} {name} is not set" if name not in environ else f"{name} is no JSON object"
    except ValueError as error:
        table, why = None, f"{name} is no JSON object: {error}"
    if not isinstance(table, dict):
        msg = f"{'.'.join(path)}: {why}; a variable has a whole table as JSON, in braces"
        raise _Impossible(msg)
    return table


def _dotted(value: object) -> object:
    """Return Kafka properties with dots in the names, which variables cannot have."""
    if not isinstance(value, dict):
        return value
    return {(k.replace("_", ".") if is_pointer(v) else k): v for k, v in value.items()}


def _literal(text: str) -> object:
    """Parse lists and tables in a variable as JSON; return other text unchanged."""
    if text[:1] in {"[", "{"}:
        try:
            return strict_json.loads(text)
        except json.JSONDecodeError:
            return text
    return text
