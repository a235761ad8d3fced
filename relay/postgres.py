"""Connect to Postgres so that a server that is gone is noticed soon."""

import os

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow, tuple_row

from outbox import schema as outbox_schema
from relay.errors import Refused

# Left to themselves, libpq waits for two minutes and TCP for a quarter of an hour.
_NOTICE: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def connect(dsn: str, *, purpose: str) -> psycopg.Connection[TupleRow]:
    """Return an autocommit connection; what `dsn` says of timeouts holds."""
    conninfo = parameters(dsn, purpose=purpose)
    return psycopg.connect(conninfo, autocommit=True, row_factory=tuple_row)


def parameters(dsn: str, *, purpose: str) -> str:
    """Return `dsn` with the name we go by, and with timeouts where it has none."""
    given = conninfo_to_dict(dsn)
    notice = {name: value for name, value in _NOTICE.items() if name not in given}
    return make_conninfo(dsn, application_name=f"dovecote relay ({purpose})", **notice)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, which names the fault."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def not_allowed(error: errors.InsufficientPrivilege, schema: str, dsn: str) -> Refused:
    """Return what names the command that grants what `error` says is missing."""
    role = str(conninfo_to_dict(dsn).get("user") or os.environ.get("PGUSER") or "ROLE")
    msg = f"{first_line(error)}; {outbox_schema.advice('relay', role, schema)}"
    return Refused(msg)
