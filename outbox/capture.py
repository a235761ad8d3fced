"""How the relay learns of events: from the table, or from the write-ahead log alone."""

from dataclasses import dataclass

from psycopg import Connection, connect, errors, sql
from psycopg.conninfo import make_conninfo

from outbox.errors import DovecoteError

# Two `dovecote init` at once take turns, as for migrations.
_LOCK = 0x646F7665636F7466

# Server versions, as libpq numbers them.
_OPTIONS_IN_PARENTHESES, _FAILOVER = 150_000, 170_000


@dataclass(frozen=True, slots=True)
class Capture:
    """What is installed: names, and where the slot begins (None: no slot was ever made)."""

    slot: str
    publication: str
    database: str
    prefix: str
    begins_at: str | None
    before: str | None
    writes_to_wal: bool


def installed(conn: Connection, schema: str) -> Capture:
    """
    Return how the outbox in `schema` is captured.

    The names follow from object ids: a slot's must be unique on the server, and a restored dump
    must not take another database's for its own.
    """
    query = sql.SQL(
        "SELECT format('dovecote_%s_%s', d.oid, n.oid), 'dovecote_' || n.oid, d.datname, c.prefix,"
        " c.begins_at::text, c.before::text, {writes_to_wal}()"
        " FROM {capture} c, pg_database d, pg_namespace n"
        " WHERE d.datname = current_database() AND n.nspname = {schema}"
    ).format(
        capture=sql.Identifier(schema, "capture"),
        writes_to_wal=sql.Identifier(schema, "writes_to_wal"),
        schema=sql.Literal(schema),
    )
    row = conn.execute(query).fetchone()
    if row is None:
        msg = f"{schema}.capture is empty: restore its row, or install the outbox anew"
        raise DovecoteError(msg)
    return Capture(*row)


def use_wal(dsn: str, schema: str, *, accept_gap: bool = False) -> str:
    """
    Have writers write to the write-ahead log, and return the name of the slot that holds it.

    What the table holds by then is remembered: the relay publishes it first. With `accept_gap`
    the slot is made anew, and events that the old one had not sent are given up.

    Raises:
        DovecoteError: the server or the role cannot do it; the message says what is missing.
    """
    with connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        _require_logical(conn)
        found = installed(conn, schema)
        _publish(conn, schema, found.publication)
        exists = conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [found.slot]
        ).fetchone()
        if found.begins_at is not None and not exists and not accept_gap:
            msg = (
                f"replication slot {found.slot} is missing, and with it events that were not "
                "published yet; --accept-gap makes a new one and goes on without them"
            )
            raise DovecoteError(msg)
        if found.begins_at is None or accept_gap:
            if exists:
                _drop(conn, found.slot)
            _make_slot(dsn, conn, schema, found, accept_gap=accept_gap)
        _set_mode(conn, schema, wal=True)
    return found.slot


def use_table(dsn: str, schema: str) -> None:
    """
    Have writers write to the table.

    Raises:
        DovecoteError: they write to the write-ahead log.
    """
    with connect(dsn, autocommit=True) as conn:
        if installed(conn, schema).writes_to_wal:
            msg = (
                "this outbox is written to the write-ahead log, and its relay would not find what "
                "comes into the table; install one in another schema"
            )
            raise DovecoteError(msg)


def _require_logical(conn: Connection) -> None:
    row = conn.execute("SELECT current_setting('wal_level')").fetchone()
    if row is None or row[0] != "logical":
        msg = (
            f"the server has wal_level = {row[0] if row else None}: set it to logical and "
            "restart the server; nothing was changed"
        )
        raise DovecoteError(msg)


def _publish(conn: Connection, schema: str, publication: str) -> None:
    """Publish inserts into the table: while modes change, events come both ways."""
    exists = conn.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [publication])
    if not exists.fetchone():
        query = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert',"
        query += " publish_via_partition_root = true)"
        conn.execute(
            sql.SQL(query).format(sql.Identifier(publication), sql.Identifier(schema, "events"))
        )


def _drop(conn: Connection, slot: str) -> None:
    try:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    except errors.ObjectInUse as error:
        msg = f"replication slot {slot} is in use; stop the relay first"
        raise DovecoteError(msg) from error


def _make_slot(
    dsn: str, conn: Connection, schema: str, found: Capture, *, accept_gap: bool
) -> None:
    """Make the slot, and remember where it begins and what had been committed by then."""
    failover = ", FAILOVER" if conn.info.server_version >= _FAILOVER else ""
    options = f"(SNAPSHOT 'export'{failover})"
    if conn.info.server_version < _OPTIONS_IN_PARENTHESES:
        options = "EXPORT_SNAPSHOT"
    query = f'CREATE_REPLICATION_SLOT "{found.slot}" LOGICAL pgoutput {options}'
    try:
        # The snapshot lasts as long as this session does nothing else.
        with connect(make_conninfo(dsn, replication="database"), autocommit=True) as replication:
            row = replication.execute(query.encode()).fetchone()
            if row is None:
                msg = f"{query}: no answer"
                raise DovecoteError(msg)
            begins_at = row[1]
            snapshot = None if accept_gap else _imported(conn, row[2])
    except (errors.InsufficientPrivilege, errors.OperationalError) as error:
        msg = (
            f"cannot make replication slot {found.slot}: {str(error).strip()}; the role needs "
            "REPLICATION, and the server a free slot (max_replication_slots, max_wal_senders)"
        )
        raise DovecoteError(msg) from error
    conn.execute(
        sql.SQL("UPDATE {} SET begins_at = %s, before = %s").format(
            sql.Identifier(schema, "capture")
        ),
        [begins_at, snapshot],
    )


def _imported(conn: Connection, name: str) -> str:
    """Return the exported snapshot `name` as text."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        row = conn.execute("SELECT pg_current_snapshot()::text").fetchone()
    return str(row[0]) if row else ""


def _set_mode(conn: Connection, schema: str, *, wal: bool) -> None:
    query = "CREATE OR REPLACE FUNCTION {}() RETURNS boolean LANGUAGE sql IMMUTABLE AS {}"
    conn.execute(
        sql.SQL(query).format(
            sql.Identifier(schema, "writes_to_wal"), sql.Literal(f"SELECT {str(wal).lower()}")
        )
    )
