"""
Connect to Postgres as all our programs do: own session, known settings.

A role or a database may have other settings for its other users. Row-level security is off:
Postgres then raises an error where it would otherwise hide rows, which we would count as
published. A session that several clients share in turn is no place for locks or settings.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection, OperationalError, ProgrammingError, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow, tuple_row

from outbox.errors import SharedSession
from outbox.postgres.ours import ADAPTERS, async_cursor, cursor
from outbox.secrets import Reread, fresh

OWN_FUNCTIONS_ONLY = "SET search_path = pg_catalog, pg_temp"
"""
For sessions of our own: all functions and operators are Postgres' own.

A role that may create objects in a schema on the path could otherwise have its function run with
our rights, if it matches the arguments better (CVE-2018-1058). Before Postgres 15, every role may
create objects in `public`.
"""

_RELIED_ON = (
    f"{OWN_FUNCTIONS_ONLY}; SET row_security = off; SET standard_conforming_strings = on;"
    " SET array_nulls = on; SET quote_all_identifiers = off; SET transform_null_equals = off;"
    # Events may have times from the first second of year 1 to the last one of 9999, in UTC. Python
    # cannot hold them in every other zone.
    " SET DateStyle = 'ISO, MDY'; SET IntervalStyle = postgres; SET TimeZone = 'UTC';"
    # In the other form the driver reads more than there is of an empty value in a list.
    " SET bytea_output = hex;"
    # Kafka's side relies on our writes: a crash must not take them back.
    " SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)

_WITHIN = _RELIED_ON.replace("SET ", "SET LOCAL ").replace("'on', false", "'on', true")

# The functions of Postgres that raise the error, for rows that would be hidden and for rows that
# may not be written.
_HIDING = frozenset({"check_enable_rls", "ExecWithCheckOptions"})

SESSION = "SELECT pg_catalog.pg_backend_pid()"
"""A query for the backend process of the session that it runs in."""

# How often to look at a session while another connection is at work. A pool that rotates through a
# few sessions may by chance hand out the same one twice.
_LOOKS = 4


Kind = TypeVar("Kind", bound=Connection[TupleRow])
T = TypeVar("T")

# Beside these words, which are in the server's language, libpq says that a password was used.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|role .* does not exist"
    r"|is not permitted to log in|authentication failed for user"
)


def conninfo(dsn: str, *, name: str = "", ours: Mapping[str, int | str] = {}) -> str:
    """
    Return `dsn` as it is now, with our encoding and those of `ours` that it does not set itself.

    `name` is the application name that the server shows, whatever `dsn` says.

    Raises:
        psycopg.ProgrammingError: as `parsed`.
    """
    dsn = fresh(dsn)
    try:
        given = parsed(dsn)
    except ValueError as error:
        raise ProgrammingError(str(error)) from None
    more = {key: value for key, value in ours.items() if key not in given}
    if name:
        more["application_name"] = name
    return make_conninfo(dsn, client_encoding="UTF8", **more)


# SQLAlchemy's URL names its driver after a plus; libpq's does not.
_DRIVER = re.compile(r"\s*postgres(?:ql)?(\+\w+)://", re.IGNORECASE)


def parsed(dsn: str) -> dict[str, Any]:
    """
    Return the parameters of a connection string.

    Raises:
        ValueError: libpq cannot read it; the message says what to do, without its contents.
    """
    # libpq's own message quotes the connection string, which may hold a password.
    msg = "libpq cannot read this connection string (not shown, it may hold a password)"
    if found := _DRIVER.match(dsn):
        msg = f"{msg}: it is SQLAlchemy's; drop {found[1]!r} after its first word"
        raise ValueError(msg)
    try:
        given = conninfo_to_dict(dsn)
    except (ProgrammingError, UnicodeError):
        raise ValueError(msg) from None
    # Errors show the host. The first character of a name of a socket may be one.
    if any("@" in host[1:] for host in str(given.get("host", "")).split(",")):
        msg = f"{msg}: in the password of a URL, write %40 for @"
        raise ValueError(msg)
    return given


def connect(
    dsn: str, *, autocommit: bool = True, name: str = "", ours: Mapping[str, int | str] = {}
) -> Connection[TupleRow]:
    """Connect to a session of our own, see `connect_as`."""
    return connect_as(Connection[TupleRow], dsn, autocommit=autocommit, name=name, ours=ours)


def connect_as(
    kind: type[Kind],
    dsn: str,
    *,
    autocommit: bool = True,
    name: str = "",
    ours: Mapping[str, int | str] = {},
) -> Kind:
    """
    Connect to a session of our own, of class `kind`; `name` and `ours` are for `conninfo`.

    Raises:
        psycopg.OperationalError: the server does not answer, or refuses the connection.
        SharedSession: other clients use the session between our statements.
    """

    def connect(text: str) -> tuple[Kind, str]:
        given = conninfo(text, name=name, ours=ours)
        made = kind.connect(given, autocommit=True, row_factory=tuple_row, context=ADAPTERS)
        return made, given

    conn, parameters = with_secrets(dsn, connect)
    try:
        if not is_direct(conn):
            _require_own(conn, parameters)
        conn.execute(_RELIED_ON)
        conn.autocommit = autocommit
    except BaseException:
        conn.close()
        raise
    return conn


@contextmanager
def _hosts() -> Iterator[None]:
    """Raise the driver's own error for a host that can be none, of which Python raises another."""
    try:
        yield
    except UnicodeError:
        msg = "a host of the connection string is no name: one of its parts is empty or too long"
        raise OperationalError(msg) from None


@_hosts()
def with_secrets(dsn: str, connect: Callable[[str], T]) -> T:
    """
    Connect with `dsn` as it is now; after a refusal once more, if its secrets have changed.

    Raises:
        psycopg.OperationalError: the server does not answer, or refuses the connection.
    """
    text = fresh(dsn)
    try:
        return connect(text)
    except OperationalError as error:
        if not isinstance(dsn, Reread) or not _is_refusal(error):
            raise
        renewed = fresh(dsn, anew=True)
        if renewed == text:
            raise
        return connect(renewed)


async def with_secrets_async(dsn: str, connect: Callable[[str], Awaitable[T]]) -> T:
    """As `with_secrets`; a command that takes long holds no other task up."""
    with _hosts():
        if not isinstance(dsn, Reread):
            return await connect(dsn)
        text = await asyncio.to_thread(fresh, dsn)
        try:
            return await connect(text)
        except OperationalError as error:
            if not _is_refusal(error):
                raise
            renewed = await asyncio.to_thread(fresh, dsn, anew=True)
            if renewed == text:
                raise
            return await connect(renewed)


def _is_refusal(error: OperationalError) -> bool:
    """Return whether another password or user might be let in."""
    line = error.pgconn
    asked = line is not None and bool(line.used_password or line.needs_password)
    return asked or _REFUSED.search(str(error)) is not None


def settle(conn: Connection[Any]) -> None:
    """
    Apply the settings that we rely on, until the end of the transaction.

    Another client of a pooler may get the session after that.
    """
    conn.execute(_WITHIN)


def hides_rows(error: BaseException | None) -> bool:
    """Return whether Postgres refuses because of row-level security, not for lack of a right."""
    diagnosed = getattr(error, "diag", None)
    where = getattr(diagnosed, "source_function", None)
    # asyncpg has the name in an attribute of its own. The message may be in any language.
    where = where or getattr(error, "server_source_function", None)
    return where in _HIDING


def is_direct(conn: Connection[Any]) -> bool:
    """
    Return whether nothing that knows of sessions stands between us and the server.

    A pooler gives each client its own number to cancel by, which is not the session's.
    """
    return _session(conn) == conn.info.backend_pid


async def is_direct_async(conn: AsyncConnection[Any]) -> bool:
    """As `is_direct`, for an async connection."""
    row = await (await async_cursor(conn).execute(SESSION)).fetchone()
    return row is not None and row[0] == conn.info.backend_pid


def _session(conn: Connection[Any]) -> int:
    """Return the session's own number; a pooler reports a different one to its clients."""
    row = cursor(conn).execute(SESSION).fetchone()
    return int(row[0]) if row else 0


def _require_own(conn: Connection[Any], parameters: str) -> None:
    """Check that a pooler keeps a session for us; change no setting and take no lock."""
    if _is_shared(conn, parameters):
        host, port = conn.info.host, conn.info.port
        msg = (
            f"{host}:{port} is a pooler that hands the sessions of Postgres to other clients "
            "between two statements (such as PgBouncer with pool_mode = transaction): settings "
            "and locks would be theirs; connect to Postgres itself, or to a pool that keeps a "
            "session for each client (pool_mode = session)"
        )
        raise SharedSession(msg)


def _is_shared(conn: Connection[Any], parameters: str) -> bool:
    """
    Return whether two connections meet in one session, or one connection has two sessions.

    The other connection pins its session with a transaction while ours asks again. A pool may hand
    out the session used last or the one idle longest: either way, one of the two cases shows.
    """
    ours = {_session(conn), _session(conn)}
    if len(ours) > 1:
        return True
    with type(conn).connect(parameters, autocommit=True) as other:
        for _ in range(_LOOKS):
            try:
                with other.transaction():
                    # If there is one session only, our query would wait for this transaction.
                    if _session(other) in ours:
                        return True
                    ours.add(_session(conn))
            except errors.ProtocolViolation:
                # A pool that shares sessions between statements allows no transaction.
                return True
            ours.add(_session(conn))
            if len(ours) > 1:
                return True
    return False


def without_secrets(dsn: str) -> str:
    """Return `dsn` in a form that logs may show: host, user and the like, and nothing else."""
    parts = conninfo_to_dict(dsn)
    shown = {k: str(v) for k, v in parts.items() if k in {"host", "port", "dbname", "user"}}
    return make_conninfo(**shown)
