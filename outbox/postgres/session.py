"""
Connect to Postgres as all of ours do: to a session of our own, with the settings that we rely on.

A role or a database may have other settings for its other users. Row-level security is off, so
that Postgres raises an error where it would hide rows from us, which we would take for rows that
are published. A session that several clients share in turn is no place for locks or settings.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from psycopg import Connection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow, tuple_row

from outbox.errors import SharedSession
from outbox.secrets import fresh

OWN_FUNCTIONS_ONLY = "SET search_path = pg_catalog, pg_temp"
"""
For a session of ours: functions and operators are Postgres' own.

Whoever may create in a schema on the path could otherwise have one of theirs run with our rights,
by a better match of its arguments (CVE-2018-1058; before Postgres 15 everybody may, in `public`).
"""

_RELIED_ON = (
    f"{OWN_FUNCTIONS_ONLY}; SET row_security = off; SET standard_conforming_strings = on;"
    " SET array_nulls = on; SET quote_all_identifiers = off; SET transform_null_equals = off;"
    " SET DateStyle = 'ISO, MDY';"
    # What goes on in Kafka rests on what we write: a crash must not take that back.
    " SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)

# Where Postgres raises it, of rows that would be hidden, and of rows that may not be written.
_HIDING = frozenset({"check_enable_rls", "ExecWithCheckOptions"})

SESSION = "SELECT pg_catalog.pg_backend_pid()"
"""Which session of Postgres a statement runs in."""

# How often a session is looked at while another connection is at work. A pool that hands its
# sessions out in turn may hand out the same one twice by chance, with few of them.
_LOOKS = 4


Kind = TypeVar("Kind", bound=Connection[TupleRow])


def conninfo(dsn: str, *, name: str = "", ours: Mapping[str, int | str] = {}) -> str:
    """
    Return `dsn` as it is now, with our encoding, and what of `ours` it does not say itself.

    `name` is what the server shows of us, whatever `dsn` says.
    """
    dsn = fresh(dsn)
    given = conninfo_to_dict(dsn)
    more = {key: value for key, value in ours.items() if key not in given}
    if name:
        more["application_name"] = name
    return make_conninfo(dsn, client_encoding="UTF8", **more)


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
    Connect to a session of our own; `name` and `ours` are for `conninfo`, `kind` is its class.

    Raises:
        psycopg.OperationalError: the server does not answer, or does not let us in.
        SharedSession: it is one that other clients use between our statements.
    """
    parameters = conninfo(dsn, name=name, ours=ours)
    conn = kind.connect(parameters, autocommit=True, row_factory=tuple_row)
    try:
        if not is_direct(conn):
            _require_own(conn, parameters)
        conn.execute(_RELIED_ON)
        conn.autocommit = autocommit
    except BaseException:
        conn.close()
        raise
    return conn


def settle(conn: Connection[Any]) -> None:
    """Give the session what we rely on, if nobody else can have it after us."""
    if is_direct(conn):
        conn.execute(_RELIED_ON)


def hides_rows(error: BaseException | None) -> bool:
    """Tell whether Postgres refuses because of row-level security, and not for lack of a right."""
    diagnosed = getattr(error, "diag", None)
    where = getattr(diagnosed, "source_function", None)
    # So asyncpg has it. The text may be in any language.
    where = where or getattr(error, "server_source_function", None)
    return where in _HIDING


def is_direct(conn: Connection[Any]) -> bool:
    """
    Tell whether nothing that knows of sessions stands between us and the server.

    A pooler tells each client a number of its own to cancel by, and not that of the session.
    """
    return _session(conn) == conn.info.backend_pid


def _session(conn: Connection[Any]) -> int:
    """Return the session's own number, which a pooler does not tell as it tells its clients'."""
    row = conn.execute(SESSION).fetchone()
    return int(row[0]) if row else 0


def _require_own(conn: Connection[Any], parameters: str) -> None:
    """Check that a pooler keeps a session for us: nothing is changed, and no lock is taken."""
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
    Tell whether one session is met from two connections, or two sessions from one connection.

    The other connection keeps its session by a transaction, while ours asks again: whichever
    session a pool hands out next, the last one or the one that has waited for longest, one of the
    two is met.
    """
    ours = {_session(conn), _session(conn)}
    if len(ours) > 1:
        return True
    with type(conn).connect(parameters, autocommit=True) as other:
        for _ in range(_LOOKS):
            try:
                with other.transaction():
                    # Where there is one session only, ours would wait for this transaction.
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
