"""
The types of values in settings: durations, hosts, Kafka's properties, connection strings.

Secrets come from the environment, from files or from commands, never from the TOML: write
`"sasl.password" = { env = "KAFKA_PASSWORD" }`, `{ file = "/run/secrets/kafka" }` or what
`references` reads besides. Files and commands are read again for each connection of `dsn` and
each client of Kafka.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import CoreSchema

from dovecote.process.settings.durations import duration, of_transactions, positive
from dovecote.process.settings.references import POINTERS, SECRET, identity, resolve, with_place
from outbox.secrets import Read, Reread, fresh_all
from outbox.tokens.identity import KEY, require_fit

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def _host_name(value: str) -> str:
    if not _HOST_NAME.fullmatch(value):
        msg = f"{value[:100]!r} is no host: write a name alone, such as push.example.com"
        raise ValueError(msg)
    return value.lower()


HostName: TypeAlias = Annotated[str, AfterValidator(_host_name)]


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
