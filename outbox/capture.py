"""How the relay learns of events: from the table, or from the write-ahead log alone."""

from dataclasses import dataclass
from typing import Any, Literal

from psycopg import Connection, connect, errors, sql
from psycopg.conninfo import make_conninfo

from outbox.errors import DovecoteError

# Who makes or drops the slot takes turns: two `dovecote init`, and a relay that has left the log.
LOCK = 0x646F7665636F7466

# How often it is tried to drop a slot, a tenth of a second apart.
_TRIES = 50

# Server versions, as libpq numbers them.
_OPTIONS_IN_PARENTHESES, _FAILOVER = 150_000, 170_000


State = Literal["table", "wal", "leaving"]
"""Where the relay reads; `leaving`: in the log, until nobody writes to it any more."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What is installed: names, where events are read, and where the newest slot began."""

    slot: str
    publication: str
    database: str
    state: State
    changed: str
    """Tells one time in a state from the next."""
    begins_at: str | None
    before: str | None


def installed(conn: Connection[Any], schema: str) -> Capture:
    """
    Return how the outbox in `schema` is captured.

    The names follow from object ids: a slot's must be unique on the server, and a restored dump
    must not take another database's for its own.
    """
    query = sql.SQL(
        "SELECT format('dovecote_%s_%s', d.oid, n.oid), 'dovecote_' || n.oid, d.datname, r.state,"
        " r.changed::text, r.begins_at::text, r.before::text"
        " FROM {reading} r, pg_database d, pg_namespace n"
        " WHERE d.datname = current_database() AND n.nspname = {schema}"
    ).format(reading=_reading(schema), schema=sql.Literal(schema))
    row = conn.execute(query).fetchone()
    if row is None:
        msg = f"{schema}.reading is empty: restore its row, or install the outbox anew"
        raise DovecoteError(msg)
    return Capture(*row)


def prefix(conn: Connection[Any], schema: str) -> str:
    """Return how messages in the log begin that are events of the outbox in `schema`."""
    query = sql.SQL("SELECT prefix FROM {}").format(sql.Identifier(schema, "capture"))
    row = conn.execute(query).fetchone()
    if row is None:
        msg = f"{schema}.capture is empty: restore its row, or install the outbox anew"
        raise DovecoteError(msg)
    return str(row[0])


def use_wal(dsn: str, schema: str, *, accept_gap: bool = False) -> str:
    """
    Have writers write to the write-ahead log, and return the name of the slot that holds it.

    What the table holds by then is remembered: the relay publishes it first. With `accept_gap`
    the slot is made anew, and events that the old one had not sent are given up.

    Raises:
        DovecoteError: the server or a role cannot do it; the message says what is missing.
    """
    with connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        _require_logical(conn)
        _require_one_shard(conn, schema)
        # A relay that is leaving the log stays in it; once it has left, the log begins anew.
        _change(conn, schema, "wal", since="leaving")
        found = installed(conn, schema)
        _publish(conn, schema, found.publication)
        exists = conn.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [found.slot]
        ).fetchone()
        if found.state == "wal" and not exists and not accept_gap:
            msg = (
                f"replication slot {found.slot} is missing, and with it events that were not "
                "published yet; --accept-gap makes a new one and goes on without them"
            )
            raise DovecoteError(msg)
        if found.state == "table" or accept_gap:
            _let_relays_read(conn, schema)
            if exists:
                _drop(conn, found.slot)
            _make_slot(dsn, conn, schema, found, accept_gap=accept_gap)
        # Behind the state: a relay of the table publishes nothing that was written after it.
        _set_mode(conn, schema, wal=True)
    return found.slot


def use_table(dsn: str, schema: str) -> bool:
    """
    Have writers write to the table, and return whether a relay has still to leave the log.

    It does so by itself, once no transaction is left that may write to the log.
    """
    with connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        _set_mode(conn, schema, wal=False)
        # In a transaction of its own: who begins now has been told of the mode.
        _change(conn, schema, "leaving", since="wal")
        return installed(conn, schema).state == "leaving"


def _reading(schema: str) -> sql.Identifier:
    return sql.Identifier(schema, "reading")


def _change(conn: Connection, schema: str, state: State, *, since: State) -> None:
    """Go over to `state`, if it is `since` now."""
    query = "UPDATE {} SET state = %s, changed = pg_current_xact_id() WHERE state = %s"
    conn.execute(sql.SQL(query).format(_reading(schema)), [state, since])


def _let_relays_read(conn: Connection, schema: str) -> None:
    """Give to every role that relays what reading the log takes, and name one that cannot."""
    claims = sql.Literal(sql.Identifier(schema, "claims").as_string())
    rows = conn.execute(
        sql.SQL(
            "SELECT r.rolname, r.rolcanlogin AND NOT (r.rolreplication OR r.rolsuper)"
            " FROM pg_class c, aclexplode(c.relacl) AS acl, pg_roles r"
            " WHERE c.oid = {}::regclass AND acl.privilege_type = 'INSERT'"
            " AND acl.grantee = r.oid AND acl.grantee <> c.relowner ORDER BY 1"
        ).format(claims)
    ).fetchall()
    for role, lacks_replication in rows:
        if lacks_replication:
            alter = sql.SQL("ALTER ROLE {} REPLICATION").format(sql.Identifier(role))
            msg = (
                f"role {role} relays, and could not read the write-ahead log: "
                f"{alter.as_string(conn)}; nothing was changed"
            )
            raise DovecoteError(msg)
    for role, _ in rows:
        grants = sql.SQL("GRANT SELECT ON {} TO {role}; GRANT EXECUTE ON FUNCTION {} TO {role}")
        capture, leave = (sql.Identifier(schema, name) for name in ("capture", "leave_log"))
        conn.execute(grants.format(capture, leave, role=sql.Identifier(role)))


def _require_one_shard(conn: Connection, schema: str) -> None:
    table = sql.Identifier(schema, "sharding")
    found = conn.execute("SELECT to_regclass(%s)", [table.as_string(conn)]).fetchone()
    if found is None or found[0] is None:
        # An older schema knows of no shards.
        return
    row = conn.execute(
        sql.SQL(
            "SELECT name, shards FROM {} WHERE shards > 1 AND system_identifier ="
            " (SELECT c.system_identifier::text FROM pg_control_system() AS c)"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).format(table)
    ).fetchone()
    if row is not None:
        msg = (
            f"outbox {row[0]!r} is published in {row[1]} shards, and the write-ahead log is read "
            "by one relay: set `shards = 1` and run `dovecote reshard` first; nothing was changed"
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
    # Whoever has just let go of it is not gone at once.
    for _ in range(_TRIES):
        try:
            conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except errors.ObjectInUse:
            conn.execute("SELECT pg_sleep(0.1)")
        else:
            return
    msg = f"replication slot {slot} is in use; stop the relay first"
    raise DovecoteError(msg)


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
        sql.SQL(
            "UPDATE {} SET state = 'wal', changed = pg_current_xact_id(), begins_at = %s,"
            " before = %s"
        ).format(_reading(schema)),
        [begins_at, snapshot],
    )


def _imported(conn: Connection, name: str) -> str:
    """Return the exported snapshot `name` as text."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        row = conn.execute("SELECT pg_current_snapshot()::text").fetchone()
    return in_order(str(row[0])) if row else ""


def in_order(snapshot: str) -> str:
    """
    Return the text of a slot's snapshot as Postgres reads it, too.

    Behind a transaction that rolled back, the exported one may end before it begins: all before
    its beginning is over then.
    """
    xmin, xmax, running = snapshot.split(":")
    return snapshot if int(xmin) <= int(xmax) else f"{xmin}:{xmin}:{running}"


def _set_mode(conn: Connection, schema: str, *, wal: bool) -> None:
    query = "CREATE OR REPLACE FUNCTION {}() RETURNS boolean LANGUAGE sql IMMUTABLE AS {}"
    conn.execute(
        sql.SQL(query).format(
            sql.Identifier(schema, "writes_to_wal"), sql.Literal(f"SELECT {str(wal).lower()}")
        )
    )
