"""The replication slots of an outbox, one for each of its shards, and their publication."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Connection, connect, errors, sql
from psycopg.rows import TupleRow

from outbox.errors import DovecoteError, first_line
from outbox.postgres.ours import cursor
from outbox.postgres.session import conninfo, with_secrets
from outbox.schema import open_transactions
from outbox.schema.open_transactions import WITHIN, Replication, Say

_REPLICATING = {"replication": "database"}
# Number of attempts to drop a slot, a tenth of a second apart.
_TRIES = 50

# How long the server may take to answer anything but the making of a slot, in seconds.
_ANSWER = 30.0

# Server versions, as libpq numbers them.
_OPTIONS_IN_PARENTHESES, _FAILOVER, _PASSES_OVER = 150_000, 170_000, 180_000


REPLICATING = ("rds_replication", "cloudsqlreplication", "azure_pg_admin")
"""
Roles whose members managed servers let follow the log, although they lack REPLICATION.

Only a server knows whom it lets in, and it can be asked as a role that connects. For any other
role, these names are all that there is to see.
"""


def can_decode(wal_level: str, effective: str | None) -> bool:
    """
    Return whether a slot for the log can be made; `effective` is None before PostgreSQL 19.

    From then on, the first slot raises the level of a server that is set to `replica`.
    """
    return wal_level == "logical" or (effective is not None and wal_level == "replica")


def lacks_replication(role: str) -> str:
    """Return how to let a role follow the log."""
    name = sql.Identifier(role)
    alter = sql.SQL("ALTER ROLE {} REPLICATION").format(name).as_string()
    grant = sql.SQL("GRANT rds_replication TO {}").format(name).as_string()
    return f"`{alter}`, or on Amazon RDS and Aurora `{grant}`"


def slot_name(base: str, number: int, of: int) -> str:
    """
    Return the name of a shard's slot; `base` is the slot of an outbox in one piece.

    The name contains the number of shards: slots for the old and the new number coexist while it
    changes.
    """
    return base if of == 1 else f"{base}_{number}_of_{of}"


def slot_names(base: str, shards: int) -> list[str]:
    """Return the names of all slots of an outbox in so many shards."""
    return [slot_name(base, number, shards) for number in range(shards)]


def existing(conn: Connection[Any], base: str) -> list[str]:
    """Return the existing slots of an outbox, for any number of shards."""
    rows = conn.execute(
        "SELECT slot_name::text FROM pg_replication_slots"
        " WHERE slot_name ~ ('^' || %s || '(_[0-9]+_of_[0-9]+)?$') ORDER BY 1",
        [base],
    ).fetchall()
    return [row[0] for row in rows]


def make(
    dsn: str,
    conn: Connection[Any],
    names: Sequence[str],
    *,
    replaced: Sequence[str] = (),
    within: float = WITHIN,
    say: Say = lambda _: None,
) -> tuple[str, str]:
    """
    Make slots that all begin at one place; return it, and what had been committed by then.

    `conn` holds the lock on slots and makes the lasting ones, as copies of a temporary slot that
    ends with its session. So a command that is cut off leaves nothing when its session ends. The
    slots in `replaced` are dropped only once there is a new one.

    Raises:
        NotFree: transactions are still open after `within` seconds; nothing was changed.
    """
    _require_unused(conn, replaced)
    first = names[0]
    source = f"{first}_by_{conn.info.backend_pid}"
    options = "(SNAPSHOT 'export')"
    if conn.info.server_version < _OPTIONS_IN_PARENTHESES:
        options = "EXPORT_SNAPSHOT"
    query = f'CREATE_REPLICATION_SLOT "{source}" TEMPORARY LOGICAL pgoutput {options}'
    try:
        # The snapshot lasts as long as this session does nothing else.
        with with_secrets(dsn, _making) as replication:
            begins_at, exported = open_transactions.make(
                conn, replication, query, within=within, say=say
            )
            snapshot = _imported(conn, exported)
            drop_all(conn, replaced)
            copy(dsn, conn, source, names)
    except (errors.InsufficientPrivilege, errors.OperationalError) as error:
        raise _cannot_make(conn, first, error) from error
    return begins_at, snapshot


def copy(dsn: str, conn: Connection[Any], source: str, names: Sequence[str]) -> None:
    """
    Make slots that begin where `source` stands; unlike new ones, they do not wait for writers.
    """
    name = source
    try:
        for name in names:
            conn.execute("SELECT pg_copy_logical_replication_slot(%s, %s, false)", [source, name])
        if names and conn.info.server_version >= _FAILOVER:
            # A copy is not synchronised to standbys, whether its source is or not.
            with _replicating(dsn) as replication:
                for name in names:
                    query = f'ALTER_REPLICATION_SLOT "{name}" (FAILOVER true)'
                    replication.execute(query.encode())
    except (errors.InsufficientPrivilege, errors.OperationalError) as error:
        raise _cannot_make(conn, name, error) from error


def _making(dsn: str) -> Replication:
    return Replication.own(conninfo(dsn, ours=_REPLICATING), patience=_ANSWER)


def _replicating(dsn: str) -> Connection[TupleRow]:
    def made(text: str) -> Connection[TupleRow]:
        return connect(conninfo(text, ours=_REPLICATING), autocommit=True)

    return with_secrets(dsn, made)


def _cannot_make(conn: Connection[Any], name: str, error: Exception) -> DovecoteError:
    role = conn.info.user
    return DovecoteError(
        f"cannot make replication slot {name}: {first_line(error)}; "
        f"role {role} needs REPLICATION ({lacks_replication(role)}), "
        "and the server a free slot for each shard and one besides, and one more for each while "
        "their number changes (max_replication_slots, max_wal_senders)"
    )


def drop(conn: Connection[Any], name: str) -> None:
    """Drop a slot; retry, because a reader that has just released it is not gone at once."""
    for _ in range(_TRIES):
        try:
            conn.execute("SELECT pg_drop_replication_slot(%s)", [name])
        except errors.ObjectInUse:
            conn.execute("SELECT pg_sleep(0.1)")
        else:
            return
    msg = f"replication slot {name} is in use; stop the relay first"
    raise DovecoteError(msg)


def drop_all(conn: Connection[Any], names: Sequence[str]) -> None:
    """
    Drop the slots that exist, or none if one is in use, because it could not be made again.

    A relay can still take one while the others are dropped, for some milliseconds.
    """
    for name in _require_unused(conn, names):
        drop(conn, name)


def _require_unused(conn: Connection[Any], names: Sequence[str]) -> list[str]:
    """Return the slots that exist; raise if one is still in use after some seconds."""
    used: list[str] = []
    for _ in range(_TRIES):
        rows = conn.execute(
            "SELECT slot_name::text, active FROM pg_replication_slots WHERE slot_name = ANY (%s)"
            " ORDER BY 1",
            [list(names)],
        ).fetchall()
        used = [name for name, is_active in rows if is_active]
        if not used:
            return [name for name, _ in rows]
        conn.execute("SELECT pg_sleep(0.1)")
    msg = (
        f"replication slot {', '.join(used)} is in use; stop the relays of this outbox first; "
        "no slot was dropped"
    )
    raise DovecoteError(msg)


def _imported(conn: Connection[Any], name: str) -> str:
    """Return the exported snapshot `name` as text."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        row = conn.execute("SELECT pg_current_snapshot()::text").fetchone()
    return in_order(str(row[0])) if row else ""


def in_order(snapshot: str) -> str:
    """
    Return the text of a slot's snapshot in a form that Postgres itself accepts.

    After a transaction that rolled back, the exported snapshot may end before it begins:
    everything before its beginning is over then.
    """
    xmin, xmax, running = snapshot.split(":")
    return snapshot if int(xmin) <= int(xmax) else f"{xmin}:{xmin}:{running}"


# An older server has no filters and no lists of columns. Each line of the catalogs has the
# transaction that wrote it.
_IS_WHOLE = """
SELECT p.pubinsert AND NOT {p_young} AND NOT EXISTS (
       SELECT FROM (SELECT %(events)s::regclass::oid AS oid UNION ALL
                    SELECT inhrelid FROM pg_inherits WHERE inhparent = %(events)s::regclass) AS t
        WHERE NOT EXISTS (SELECT FROM pg_publication_rel AS r
                           WHERE r.prpubid = p.oid AND r.prrelid = t.oid AND NOT {r_young}
                             AND to_jsonb(r) ->> 'prqual' IS NULL
                             AND to_jsonb(r) ->> 'prattrs' IS NULL))
  FROM pg_publication AS p WHERE p.pubname = %(name)s
"""
_YOUNG = "coalesce(age({}.xmin) BETWEEN 0 AND age(%(since)s::text::xid8::xid) - 1, false)"
_IS_WHOLE = _IS_WHOLE.format(p_young=_YOUNG.format("p"), r_young=_YOUNG.format("r"))


def is_whole(
    conn: Connection[Any], schema: str, publication: str, since: str | None = None
) -> bool:
    """
    Return whether inserts into all tables of events are published, and were all along.

    That is, since the transaction `since`; None: since a moment ago.
    """
    asked = {"events": sql.Identifier(schema, "events").as_string(conn), "name": publication}
    found = cursor(conn).execute(_IS_WHOLE.encode(), {**asked, "since": since}).fetchone()
    return found is not None and bool(found[0])


def lacking(publication: str) -> str:
    """Return what to say if the log lacks rows of the way back into the table."""
    return (
        f"publication {publication} was dropped or changed by others on the way back into the "
        "table, and the log lacks rows that were written since then; `dovecote init outbox "
        "--capture wal --accept-gap` goes on without them: they stay in the table and are not "
        "published"
    )


def unreadable(said: str) -> str:
    """Return what to say if the server cannot read its log on without a publication."""
    return (
        f"the write-ahead log cannot be read on ({said}): the publication was dropped by others, "
        "and before PostgreSQL 18 a server reads nothing that was written until it was made anew; "
        "`dovecote init outbox --capture wal --accept-gap` makes it, and goes on without the "
        "events that no relay had read: they are lost, unless the table has them"
    )


def without(conn: Connection[Any], publication: str) -> str:
    """Return what is wrong if there is no publication; empty: there is, or none is needed."""
    if conn.info.server_version >= _PASSES_OVER or _exists(conn, publication):
        return ""
    return (
        f"publication {publication} was dropped by others, and before PostgreSQL 18 nothing can "
        "be read that is written to the log until it is made anew"
    )


def _exists(conn: Connection[Any], publication: str) -> bool:
    found = cursor(conn).execute("SELECT FROM pg_publication WHERE pubname = %s", [publication])
    return found.fetchone() is not None


def publish(conn: Connection[Any], schema: str, publication: str) -> bool:
    """
    Publish inserts into all tables of events; return whether there was no publication.

    Others may have dropped or changed it. While all events are messages, a server needs it from
    PostgreSQL 18 on no more. An older one looks it up for each row of any table.
    """
    if is_whole(conn, schema, publication):
        return False
    is_new, events = not _exists(conn, publication), sql.Identifier(schema, "events")
    name = sql.Identifier(publication)
    query = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert',"
    query += " publish_via_partition_root = true)"
    with conn.transaction():
        cursor(conn).execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(name))
        cursor(conn).execute(sql.SQL(query).format(name, events))
    return is_new


@contextmanager
def published(conn: Connection[Any], schema: str, publication: str) -> Iterator[None]:
    """
    Publish inserts into the table: while modes change, events arrive both ways.

    A slot sees no publication that is younger. If no slot is made, what was made here goes.
    """
    is_new = publish(conn, schema, publication)
    try:
        yield
    except BaseException:
        if is_new:
            name = sql.Identifier(publication)
            cursor(conn).execute(sql.SQL("DROP PUBLICATION {}").format(name))
        raise
