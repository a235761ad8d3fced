"""
Settings of one process, from a TOML file and the environment, checked by a pydantic model.

The environment overrides the file. Unknown fields are errors. Secrets come from the environment,
from files or from commands, never from the TOML: write `"sasl.password" = { env =
"KAFKA_PASSWORD" }`, `{ file = "/run/secrets/kafka" }` or what `dovecote.process.references` reads
besides. Files and commands are read again for each connection of `dsn` and each client of Kafka.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from dovecote.process import strict_json
from dovecote.process.durations import duration, of_transactions, positive
from dovecote.process.references import (
    POINTERS,
    SECRET,
    UNSET,
    identity,
    is_pointer,
    resolve,
    with_place,
)
from outbox.errors import BadSettings
from outbox.secrets import Read, Reread, fresh_all
from outbox.tokens.identity import KEY, require_fit

M = TypeVar("M", bound=BaseModel)

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class Settings(BaseModel):
    """The base of every settings model: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _host_name(value: str) -> str:
    if not _HOST_NAME.fullmatch(value):
        msg = f"{value[:100]!r} is no host: write a name alone, such as push.example.com"
        raise ValueError(msg)
    return value.lower()


HostName: TypeAlias = Annotated[str, AfterValidator(_host_name)]


class HttpSettings(Settings):
    """Where /metrics, /healthz and /readyz are served."""

    host: str = "127.0.0.1"
    """Address to listen on; a container wants 0.0.0.0."""

    port: int | None = Field(default=None, ge=0, le=65535)
    """Port; 0: any free one (it is logged); absent: not served."""

    hosts: tuple[HostName, ...] = ()
    """
    Names under which requests may ask for it; `localhost`, `host` and, unless that is loopback,
    any address and the machine's own name always count.
    """


def load(model: type[M], file: Path | None, *, prefix: str, environ: Mapping[str, str]) -> M:
    """
    Return the settings in `file`, overridden by `environ`.

    `PREFIX_HTTP__PORT` sets `port` in the table `http`. In a table of Kafka properties,
    underscores in the variable's name stand for dots.

    Raises:
        BadSettings: the file cannot be read, or a setting is missing, unknown or impossible.
    """
    data = _read(file) if file is not None else {}
    origin = f"{file} and {prefix}_*" if file is not None else f"{prefix}_*"
    try:
        for path, name in _from_environment(prefix, environ):
            _set(data, path, {"env": name})
        return model.model_validate(_plain(model, data, environ), context={"environ": environ})
    except ValidationError as error:
        given = _Given(model, data, file, prefix)
        raise BadSettings(_explain(origin, error, given)) from None
    except _Impossible as error:
        msg = f"bad settings ({origin}):\n  {error}"
        raise BadSettings(msg) from None


class _Impossible(Exception):
    """A setting that never reaches the model; the message begins with its path."""


def _environ(info: ValidationInfo) -> Mapping[str, str]:
    return (info.context or {}).get("environ", {})  # type: ignore[no-any-return]  # a bare dict


def pointed(value: object, info: ValidationInfo) -> object:
    """Return the target of a pointer such as `{env = …}`; return other values unchanged."""
    return resolve(value, _environ(info))[0]


def _kafka(value: object, _: object, info: ValidationInfo) -> dict[str, str]:
    """Return properties that read their secrets again; pydantic itself would copy them."""
    if not isinstance(value, Mapping):
        msg = 'must be a table of Kafka client properties, such as "bootstrap.servers"'
        raise ValueError(msg)  # noqa: TRY004  # pydantic turns only ValueError into a message
    environ = _environ(info)
    found = {
        str(k): identity(given, environ) if k == KEY else _property(str(k), given, environ)
        for k, given in value.items()
    }
    require_fit(found)
    for name in _BROKERS & found.keys():
        # The client would take none for brokers that are away; mostly a variable was empty.
        if not found[name].strip(" ,\t\r\n"):
            msg = f'"{name}" is empty: give the brokers, as host:port, separated by commas'
            raise ValueError(msg)
    return found


_BROKERS = frozenset({"bootstrap.servers", "metadata.broker.list"})


def table(
    value: Mapping[str, object], info: ValidationInfo, secret: re.Pattern[str]
) -> dict[str, str]:
    """Return properties whose values may be pointers; those whose names match `secret` must be."""
    environ = _environ(info)
    return {name: _property(name, given, environ, secret) for name, given in value.items()}


def _property(
    name: str, given: object, environ: Mapping[str, str], secret: re.Pattern[str] = SECRET
) -> str:
    value, pointed = resolve(given, environ)
    if secret.search(name) and not pointed and not isinstance(value, Reread):
        msg = f"{name} is a secret: write {POINTERS} in its place"
        raise ValueError(msg)
    match value:
        case Reread():
            return value
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case {**inner} if inner:
            msg = f'names with dots need quotes: write "{name}.{next(iter(inner))}" = …'
            raise ValueError(msg)
        case _:
            msg = f"{name} must be a string, a number or a boolean"
            raise ValueError(msg)


def _dsn(value: object, _: object, info: ValidationInfo) -> str:
    """Return a connection string that reads its secrets again; pydantic itself would copy it."""
    value, pointed = resolve(value, _environ(info))
    # libpq would take it for a server on this machine; mostly a variable was not set.
    if value == {} or (isinstance(value, str) and not value.strip()):
        raise ValueError(_EMPTY_DSN)
    if isinstance(value, Mapping):
        placed = with_place(value, _environ(info))
        parameters = {k: _property(k, v, _environ(info)) for k, v in placed.items()}
        made = partial(_conninfo, parameters)
        is_read_again = any(isinstance(v, Reread) for v in parameters.values())
        return Reread(made) if is_read_again else made(anew=False)
    if isinstance(value, Reread):
        return Reread(partial(_parsed, value.read))
    parts = _parameters(str(value))
    if not pointed and (secrets := [name for name in parts if SECRET.search(name)]):
        msg = (
            f"holds {', '.join(secrets)}: use PGPASSWORD, a passfile, {{ env = … }} for the whole "
            "string, or a table in which the secret is { env = … }"
        )
        raise ValueError(msg)
    return str(value)


def _conninfo(parameters: Mapping[str, str], *, anew: bool) -> str:
    # Settings without a database, such as those of a worker of Spark, do not load the driver.
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    try:
        return make_conninfo(**fresh_all(parameters, anew=anew))
    except ProgrammingError as error:
        msg = f"libpq: {str(error).strip()}"
        raise ValueError(msg) from None


def _parsed(read: Read, *, anew: bool) -> str:
    """Return a connection string that libpq can read, and that can be read again."""
    if not (text := read(anew=anew).strip()):
        raise ValueError(_EMPTY_DSN)
    _parameters(text)
    return text


def _parameters(text: str) -> dict[str, Any]:
    from outbox.postgres.session import parsed

    return parsed(text)


_EMPTY_DSN = (
    'is empty: give a connection string, such as "host=db.internal dbname=shop user=app"; '
    "where PGHOST and other variables of libpq say where, dbname alone will do"
)


class OrText:
    """Marks a table in whose place a file may have text, for the JSON Schema of the file."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string"}]}


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(duration)]
"""A `timedelta`, written "250ms", "60s", "3m" or "2h"."""

PositiveDuration: TypeAlias = Annotated[Duration, AfterValidator(positive)]
"""A `Duration` that is longer than 0."""

TransactionTimeout: TypeAlias = Annotated[Duration, AfterValidator(of_transactions)]
"""A `Duration` that Kafka takes: the client keeps its milliseconds in 32 bits."""

_SCALAR = {"type": ["string", "number", "boolean", "object"]}

KafkaTable: TypeAlias = Annotated[
    dict[str, str],
    WrapValidator(_kafka),
    WithJsonSchema({"type": "object", "additionalProperties": _SCALAR}),
]
"""`KafkaProperties` as a part of another type, which keeps them out of its repr."""

KafkaProperties: TypeAlias = Annotated[
    KafkaTable, Field(repr=False, json_schema_extra={"open": True})
]
"""Any librdkafka property; its values never appear in a repr."""

Dsn: TypeAlias = Annotated[
    str,
    WrapValidator(_dsn),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
    Field(repr=False),
]
"""A libpq connection string, or a table of libpq parameters; never in a repr."""


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise BadSettings(msg) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
    fields = _fields(model)
    return {
        name: _of_field(fields[name], value, environ, (*path, name)) if name in fields else value
        for name, value in data.items()
    }


def _of_field(
    field: FieldInfo, value: object, environ: Mapping[str, str], path: tuple[str, ...]
) -> object:
    if _is_open(field):
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


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by their names in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _is_open(field: FieldInfo) -> bool:
    return (field.json_schema_extra or {}) == {"open": True}


def _table(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a table of settings."""
    inner = field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


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


_A_LIST = 'must be a list, such as ["a", "b"]'
_WHOLE, _NUMBER, _FLAG = "must be a whole number", "must be a number", "must be true or false"
_TIME = "must be a time, such as 2026-02-01T09:30:00Z"
PLAINLY = {
    "extra_forbidden": "there is no such setting",
    "missing": "is missing",
    **dict.fromkeys(("tuple_type", "list_type", "sequence_str", "is_instance_of"), _A_LIST),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), _WHOLE),
    "int_parsing_size": "is too large a number",
    **dict.fromkeys(("float_parsing", "float_type"), _NUMBER),
    **dict.fromkeys(("bool_parsing", "bool_type"), _FLAG),
    "string_type": "must be text",
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _TIME),
    "path_type": "must be the path of a file",
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), "must be a table"),
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
"""Plain words for errors that pydantic words in its own way."""


def plain(message: str) -> str:
    """Return what pydantic says, as messages of ours say it."""
    said = message.removeprefix("Value error, ").replace(" after validation", "")
    return _SHOULD.sub(lambda found: _MUST[found[1]], said, count=1)


_MUST = {"be": "must be", "have": "must have", "match": "must match"}
_SHOULD = re.compile(r"^[A-Z]\w* should (be|have|match)\b")

CONSEQUENCE = "default_factory_not_called"
"""
pydantic's error for a default that depends on another setting, which is wrong; it reports the
cause as well.
"""


@dataclass(frozen=True, slots=True)
class _Given:
    """The sources of the settings, so that an error can name the one at fault."""

    model: type[BaseModel]
    data: Mapping[str, Any]
    file: Path | None
    prefix: str

    def remark(self, kind: str, path: Sequence[str | int]) -> str:
        """
        Return what to add to an error of this kind: where the setting was set, or can be set.
        """
        if kind == "missing":
            return self._remedy(path)
        source = self._source(path, pointing=kind != "extra_forbidden")
        wanted = self._meant(path) if kind == "extra_forbidden" and source else ""
        return source + wanted

    def _remedy(self, path: Sequence[str | int]) -> str:
        if self.file is not None or len(path) != 1:
            return ""
        field = _fields(self.model).get(str(path[0]))
        inner = "__BOOTSTRAP_SERVERS" if field and _is_open(field) else ""
        inner = "__…" if field and _table(field) else inner
        return f"; give --config, or set {self.prefix}_{str(path[0]).upper()}{inner}"

    def _source(self, path: Sequence[str | int], *, pointing: bool) -> str:
        """Return what set it; unless `pointing`, a variable that the file points to did not."""
        found: Any = self.data
        for part in path:
            if not isinstance(found, dict) or part not in found or is_pointer(found):
                break
            found = found[part]
        if found is self.data:
            return ""
        match found:
            case {"env": str(name)} if pointing or name.startswith(f"{self.prefix}_"):
                return f" (set by {name})"
            case {**inner} if inner and (variable := _variable(inner, self.prefix)):
                return f" (set by {variable})"
            # If the environment sets nothing, the file is named already.
            case _ if (
                self.file is not None and _points(self.data) and not (pointing and _points(found))
            ):
                return f" (set in {self.file})"
            case _:
                return ""

    def _meant(self, path: Sequence[str | int]) -> str:
        """Return the variable that was meant when one underscore stands for two."""
        name = str(path[0])
        if len(path) != 1 or self.data[name] != {"env": f"{self.prefix}_{name.upper()}"}:
            return ""
        for table, field in _fields(self.model).items():
            rest = name.removeprefix(f"{table}_")
            inner = _table(field)
            if rest != name and (_is_open(field) or (inner and rest in _fields(inner))):
                wanted = f"{self.prefix}_{table}__{rest}".upper()
                return f"; a table takes two underscores: {wanted}"
        return ""


def _variable(value: object, prefix: str) -> str | None:
    """
    Return a variable that sets something in it, if that variable's name has one table too many.

    A variable that the file itself points to is none.
    """
    match value:
        case {"env": str(name)}:
            return name if name.startswith(f"{prefix}_") else None
        case {**inner}:
            found = (_variable(each, prefix) for each in inner.values())
            return next(filter(None, found), None)
        case _:
            return None


def _points(value: object) -> bool:
    """Return whether any part of it is a pointer."""
    return isinstance(value, dict) and (is_pointer(value) or any(map(_points, value.values())))


def _explain(origin: str, error: ValidationError, given: _Given) -> str:
    lines = []
    for found in error.errors(include_url=False, include_input=False):
        if found["type"] == CONSEQUENCE:
            continue
        what = PLAINLY.get(found["type"]) or plain(found["msg"])
        where = ".".join(str(part) for part in found["loc"])
        if not what.startswith(UNSET):  # it names the variable already
            what += given.remark(found["type"], found["loc"])
        lines.append(f"{where}: {what}" if where else what)
    return f"bad settings ({origin}):\n  " + "\n  ".join(lines)
