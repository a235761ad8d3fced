"""Make, describe and drop the auditor's slot of an outbox."""

from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import Connection, errors, sql

from dovecote.audit.away import Away
from dovecote.audit.rules.logged import Retained

_FAILOVER = 170_000
_MAKING_MILLISECONDS = 30_000
_ANSWER_MILLISECONDS = 60_000


class Log(NamedTuple):
    """The write-ahead log of an outbox at one moment."""

    state: str
    """`table`, `wal`, or `leaving` the log."""
    name: str
    """The name of the auditor's slot."""
    publication: str
    end: int
    """Its end: all that anybody can have read lies before it; 0 for an outbox in the table."""
    slot: Retained | None
    relayed: int | None
    """Up to where its relays have confirmed it; None: they have no slot."""


def log_of(conn: Connection[Any], schema: str) -> Log:
    """Return the log of the outbox in `schema`; LSNs are numbers of bytes."""
    query = sql.SQL(
        "WITH names AS (SELECT r.state, format('dovecote_audit_%s_%s', d.oid, n.oid) AS name,"
        " format('dovecote_%s_%s', d.oid, n.oid) AS relays, 'dovecote_' || n.oid AS publication"
        " FROM {} AS r, pg_database AS d, pg_namespace AS n"
        " WHERE d.datname = current_database() AND n.nspname = {}),"
        # A table can be read from a standby too, and on servers without this function.
        " log AS (SELECT CASE WHEN state = 'table' THEN '0/0' ELSE pg_current_wal_flush_lsn() END"
        " AS lsn FROM names)"
        " SELECT n.state, n.name, n.publication, (l.lsn - '0/0')::bigint, s.slot_name IS NOT NULL,"
        " (s.confirmed_flush_lsn - '0/0')::bigint, (l.lsn - s.restart_lsn)::bigint, s.active_pid,"
        " coalesce(to_jsonb(s) ->> 'invalidation_reason',"
        " CASE WHEN s.wal_status = 'lost' THEN 'wal_removed' END),"
        " (SELECT min(o.confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots AS o"
        " WHERE o.slot_name ~ ('^' || n.relays || '(_[0-9]+_of_[0-9]+)?$'))"
        " FROM names AS n CROSS JOIN log AS l"
        " LEFT JOIN pg_replication_slots AS s ON s.slot_name = n.name"
    ).format(sql.Identifier(schema, "reading"), sql.Literal(schema))
    row = conn.execute(query).fetchone()
    if row is None:
        msg = f"{schema}.reading is empty: restore its row, or install the outbox anew"
        raise Away(msg)
    state, name, publication, end, exists, *of_slot, relayed = row
    return Log(state, name, publication, end, Retained(*of_slot) if exists else None, relayed)


def prefix_of(conn: Connection[Any], part: str, schema: str) -> str:
    """
    Return the prefix of the outbox's messages in the log.

    Raises:
        Away: the role may not read it, or there is none.
    """
    table = sql.Identifier(schema, "capture")
    try:
        row = conn.execute(sql.SQL("SELECT prefix FROM {}").format(table)).fetchone()
    except errors.InsufficientPrivilege as error:
        grant = sql.SQL("GRANT SELECT ON {} TO {}").format(table, sql.Identifier(conn.info.user))
        msg = (
            f"{part}: its events are in the write-ahead log, and role {conn.info.user} may not "
            f"see which they are: `{grant.as_string(conn)}`"
        )
        raise Away(msg) from error
    if row is None:
        msg = f"{part}: {schema}.capture is empty: restore its row, or install the outbox anew"
        raise Away(msg)
    return str(row[0])


def make(conn: Connection[Any], part: str, name: str) -> int:
    """
    Make a slot; return where it begins. It waits for the transactions that are open.

    Raises:
        Away: the role lacks the right, the server has no room, or they stay open.
    """
    failover: LiteralString = ", true" if conn.info.server_version >= _FAILOVER else ""
    try:
        _patience(conn, _MAKING_MILLISECONDS)
        row = conn.execute(
            "SELECT (lsn - '0/0')::bigint FROM"  # noqa: S608  # constants
            f" pg_create_logical_replication_slot(%s, 'pgoutput', false, false{failover})",
            [name],
        ).fetchone()
    except errors.InsufficientPrivilege as error:
        raise lacks_replication(part, conn.info.user) from error
    except errors.QueryCanceled as error:
        msg = (
            f"{part}: the audit of its log cannot begin while transactions stay open that were "
            f"open {_MAKING_MILLISECONDS // 1000} s ago: see pg_stat_activity and "
            "pg_prepared_xacts, and end them"
        )
        raise Away(msg) from error
    except errors.ConfigurationLimitExceeded as error:
        msg = f"{part}: the server has no free replication slot: raise max_replication_slots"
        raise Away(msg) from error
    finally:
        if not conn.closed:
            _patience(conn, _ANSWER_MILLISECONDS)
    assert row is not None  # noqa: S101  # a function returns a row
    return int(row[0])


def drop(conn: Connection[Any], part: str, name: str) -> None:
    """
    Drop a slot.

    Raises:
        Away: somebody reads it, or the role lacks the right.
    """
    try:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [name])
    except errors.UndefinedObject:
        return
    except errors.InsufficientPrivilege as error:
        raise lacks_replication(part, conn.info.user) from error
    except errors.ObjectInUse as error:
        raise in_use(part, name) from error


def lacks_replication(part: str, role: str) -> Away:
    """Return the error of a role that may not read the log."""
    name = sql.Identifier(role).as_string()
    return Away(
        f"{part}: its events are in the write-ahead log, and role {role} may not read it: "
        f"`ALTER ROLE {name} REPLICATION`, or on Amazon RDS and Aurora "
        f"`GRANT rds_replication TO {name}`"
    )


def in_use(part: str, name: str) -> Away:
    """Return the error of a slot that somebody reads."""
    return Away(
        f"{part}: replication slot {name} is in use: end the other auditor of this outbox first "
        "(`active_pid` in pg_replication_slots is its server process)"
    )


def _patience(conn: psycopg.Connection[Any], milliseconds: int) -> None:
    conn.execute("SELECT set_config('statement_timeout', %s, false)", [str(milliseconds)])
