"""Where the relay reads events: from the table, or from the write-ahead log alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from psycopg import Connection, errors, sql

from outbox.errors import DovecoteError, NotFree
from outbox.postgres import session
from outbox.postgres.ours import cursor
from outbox.schema import holds, restored, slots
from outbox.schema.belongings import PATIENCE, showing
from outbox.schema.migrations import own_functions_only
from outbox.schema.open_transactions import WITHIN, Say

# Identifies this database: a dump restored elsewhere brings places that belong to its origin.
_HERE = sql.SQL(
    "(SELECT c.system_identifier || '/' || d.oid FROM pg_control_system() AS c,"
    " pg_database AS d WHERE d.datname = current_database())"
)

WAL_LEVEL = "SELECT current_setting('wal_level'), current_setting('effective_wal_level', true)"
"""The level that is set, and the one in effect; the latter is NULL before PostgreSQL 19."""

State = Literal["table", "wal", "leaving"]
"""
Where the relay reads; `leaving`: in the log, until the last writer has stopped writing to it.
"""


@dataclass(frozen=True, slots=True)
class Capture:
    """How an outbox is captured: names, where events are read, and where the newest slot began."""

    slot: str
    """The slot of an outbox in one piece; slots of shards derive their names from it."""
    publication: str
    database: str
    state: State
    changed: str
    """Distinguishes one stay in a state from the next."""
    begins_at: str | None
    before: str | None
    departed: Sequence[int] = ()
    """The shards that are back in the table while the log is being left."""
    begins_here: bool = True
    """Whether `begins_at` belongs to this database, and not to one that it was restored from."""
    anew: Mapping[str, str] = field(default_factory=dict)
    """
    Where each slot begins that was made with a gap accepted, by name. After a space: what had been
    committed by then. A place before `begins_at` belongs to an older slot.
    """


def installed(conn: Connection[Any], schema: str) -> Capture:
    """
    Return how the outbox in `schema` is captured.

    Names derive from object ids: a slot's name must be unique on the server, and a restored dump
    must not take another database's slot for its own.
    """
    query = sql.SQL(
        "SELECT format('dovecote_%s_%s', d.oid, n.oid), 'dovecote_' || n.oid, d.datname, r.state,"
        " r.changed::text, r.begins_at::text, r.before::text,"
        # An older schema has none of these columns.
        " ARRAY(SELECT jsonb_array_elements_text(to_jsonb(r) -> 'departed')::int),"
        " coalesce(to_jsonb(r) ->> 'begins_in' = {here}, true),"
        " coalesce(to_jsonb(r) -> 'anew', '{{}}')"
        " FROM {reading} r, pg_database d, pg_namespace n"
        " WHERE d.datname = current_database() AND n.nspname = {schema}"
    ).format(reading=_reading(schema), schema=sql.Literal(schema), here=_HERE)
    row = cursor(conn).execute(query).fetchone()
    if row is None:
        msg = f"{schema}.reading is empty: restore its row, or install the outbox anew"
        raise DovecoteError(msg)
    return Capture(*row)


def prefix(conn: Connection[Any], schema: str) -> str:
    """Return the prefix of those messages in the log that are events of the outbox in `schema`."""
    query = sql.SQL("SELECT prefix FROM {}").format(sql.Identifier(schema, "capture"))
    row = cursor(conn).execute(query).fetchone()
    if row is None:
        msg = f"{schema}.capture is empty: restore its row, or install the outbox anew"
        raise DovecoteError(msg)
    return str(row[0])


def use_wal(
    dsn: str,
    schema: str,
    *,
    accept_gap: bool = False,
    shard: int | None = None,
    within: float = WITHIN,
    say: Say = lambda _: None,
) -> list[str]:
    """
    Switch writers to the write-ahead log, and return the names of the slots that hold it.

    The capture remembers which rows the table holds by then: relays publish those first. With
    `accept_gap` all slots are made anew, or only that of `shard`. Events that the old slots had
    not sent are given up. A new slot waits up to `within` seconds for open transactions; `say` is
    told which they are.

    Raises:
        NotFree: they are still open; the capture was not changed.
        DovecoteError: the server or a role cannot do it; the message says what is missing.
    """
    with _in_turn(dsn, schema) as conn:
        _require_logical(conn)
        found = installed(conn, schema)
        if found.state == "table":
            _require_none_restored(conn, schema, done="delete them if they are published")
        # On the way out, the slots of all shards lack rows that were not published.
        is_asked = found.state == "leaving" and (shard is not None or not accept_gap)
        if is_asked and not slots.is_whole(conn, schema, found.publication, found.changed):
            raise DovecoteError(slots.lacking(found.publication))
        shards = _shards(conn, schema)
        if shard is not None:
            _require_slot_of(conn, schema, shard=shard, shards=shards)
        # Check first: this raises before anything has changed.
        relays = _relays_that_can_read(conn, schema)
        # A relay that is leaving the log stays in it; once it has left, the log begins anew.
        _change(conn, schema, "wal", since="leaving")
        found = installed(conn, schema)
        names = slots.slot_names(found.slot, shards)
        exist = slots.existing(conn, found.slot)
        missing = sorted(set(names) - set(exist))
        if found.state == "wal" and missing and not accept_gap:
            msg = (
                f"replication slot {', '.join(missing)} is missing, and with it events that were "
                "not published yet; --accept-gap makes a new one and goes on without them"
            )
            raise DovecoteError(msg)
        if found.state == "wal" and (lacks := slots.without(conn, found.publication)):
            say(f"{lacks}: it is made anew now")
        made = names if shard is None else [names[shard]]
        begun = None
        with slots.published(conn, schema, found.publication):
            if found.state == "table" or accept_gap:
                replaced = exist if shard is None else made
                begun = slots.make(dsn, conn, made, replaced=replaced, within=within, say=say)
            with conn.transaction():
                _let_read(conn, schema, relays)
                if begun is not None and shard is None:
                    _remember(conn, schema, begun[0], before=None if accept_gap else begun[1])
                if begun is not None and accept_gap:
                    _remember_anew(conn, schema, made, begins_at=begun[0], before=begun[1])
        # The state comes first: a relay of the table publishes nothing that was written after it.
        _set_mode(conn, schema, wal=True)
    return names


def use_table(dsn: str, schema: str) -> bool:
    """
    Switch writers to the table, and return whether a relay has still to leave the log.

    Each shard leaves by itself, once no transaction is left that may write to the log.

    Raises:
        DovecoteError: the role may not do it; the message says who may.
    """
    with _in_turn(dsn, schema) as conn:
        found = installed(conn, schema)
        if found.state == "wal":
            _require_none_restored(conn, schema, done="the log had them: delete them")
        if found.state != "table":
            # Until the log is left, it alone brings the rows that are written from here on.
            slots.publish(conn, schema, found.publication)
        _set_mode(conn, schema, wal=False)
        departed = sql.SQL("UPDATE {} SET departed = DEFAULT WHERE state = 'wal'")
        cursor(conn).execute(departed.format(_reading(schema)))
        # Use a separate transaction: one that begins after it sees the new mode.
        _change(conn, schema, "leaving", since="wal")
        return installed(conn, schema).state == "leaving"


def let_relays_read(conn: Connection, schema: str) -> None:
    """
    If events are in the log, grant every role that relays what it needs to read the log.

    Raises:
        DovecoteError: one of them lacks a right that nobody can grant here.
    """
    with conn.transaction(), own_functions_only(conn):
        if installed(conn, schema).state != "table":
            _let_read(conn, schema, _relays_that_can_read(conn, schema))


@contextmanager
def _in_turn(dsn: str, schema: str) -> Iterator[Connection]:
    """Yield a connection that holds the lock on slots; if a right is missing, name who has it."""
    with session.connect(dsn) as conn:
        try:
            cursor(conn).execute(f"SET lock_timeout = '{PATIENCE}'".encode())
            if holds.has_functions(conn, schema):
                holds.hold_soon(conn, schema, holds.CAPTURE)
            yield conn
        except errors.LockNotAvailable as error:
            said = error.diag.message_primary or str(error)
            msg = (
                f"{said}; locks in schema {schema!r} are held by {holds.lockers(conn, schema)}: "
                "run it again when these have ended"
            )
            raise NotFree(msg) from error
        except errors.InsufficientPrivilege as error:
            said = error.diag.message_primary or str(error)
            advice = showing(schema) if session.hides_rows(error) else _who_may(conn, schema)
            msg = f"{said}; {advice}"
            raise DovecoteError(msg) from error


def _who_may(conn: Connection, schema: str) -> str:
    """Return who may change the capture, for a role that lacks a right."""
    row = (
        cursor(conn)
        .execute(
            "SELECT pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), current_user"
            " FROM pg_class AS c, pg_namespace AS n WHERE c.relnamespace = n.oid"
            " AND n.nspname = %s AND c.relname = 'reading'",
            [schema],
        )
        .fetchone()
    )
    owner, owns, role = row or ("the owner of the database", False, None)
    if owns:
        return f"grant that to role {role}, or run it as a superuser"
    return f"run it as {owner}, to whom the outbox belongs"


def _reading(schema: str) -> sql.Identifier:
    return sql.Identifier(schema, "reading")


def _change(conn: Connection, schema: str, state: State, *, since: State) -> None:
    """Change to `state`, if the state is `since` now."""
    query = "UPDATE {} SET state = %s, changed = pg_current_xact_id() WHERE state = %s"
    cursor(conn).execute(sql.SQL(query).format(_reading(schema)), [state, since])


def _relays_that_can_read(conn: Connection, schema: str) -> list[str]:
    """Return the roles that relay; raise if one cannot read the log."""
    # The name depends on the age of the schema: `claims` in an older one, `parked` in a newer one.
    tables = [sql.Identifier(schema, name).as_string() for name in ("claims", "parked")]
    rows = (
        cursor(conn)
        .execute(
            sql.SQL(
                "SELECT DISTINCT r.rolname, r.rolcanlogin AND NOT (r.rolreplication OR r.rolsuper"
                " OR EXISTS (SELECT FROM pg_roles AS m WHERE m.rolname = ANY ({})"
                " AND pg_has_role(r.oid, m.oid, 'MEMBER')))"
                " FROM pg_class c, aclexplode(c.relacl) AS acl, pg_roles r"
                " WHERE c.oid IN (to_regclass({}), to_regclass({}))"
                " AND acl.privilege_type = 'INSERT' AND acl.grantee = r.oid"
                " AND acl.grantee <> c.relowner ORDER BY 1"
            ).format(sql.Literal(list(slots.REPLICATING)), *tables)
        )
        .fetchall()
    )
    for role, lacks_replication in rows:
        if lacks_replication:
            msg = (
                f"role {role} relays, and could not read the write-ahead log: "
                f"{slots.lacks_replication(role)}; the capture was not changed"
            )
            raise DovecoteError(msg)
    return [role for role, _ in rows]


def _let_read(conn: Connection, schema: str, roles: Sequence[str]) -> None:
    """Grant roles what they need to read the log."""
    for role in roles:
        grants = sql.SQL("GRANT SELECT ON {} TO {role}; GRANT EXECUTE ON FUNCTION {} TO {role}")
        capture, leave = (sql.Identifier(schema, name) for name in ("capture", "leave_log"))
        cursor(conn).execute(grants.format(capture, leave, role=sql.Identifier(role)))


def _shards(conn: Connection, schema: str) -> int:
    """Return the number of shards in which the outbox is published; each needs a slot."""
    table = sql.Identifier(schema, "sharding")
    found = cursor(conn).execute("SELECT to_regclass(%s)", [table.as_string(conn)]).fetchone()
    if found is None or found[0] is None:
        # An older schema has no shards.
        return 1
    # A relay that was refused for its name has left a row here, but published nothing.
    rows = (
        cursor(conn)
        .execute(
            sql.SQL(
                "WITH known AS (SELECT s.shards, s.name, EXISTS (SELECT FROM {} AS c"
                " WHERE (c.system_identifier, c.database) = (s.system_identifier, s.database)"
                # An older schema does not say which relay is about to begin.
                " AND to_jsonb(c) ->> 'began' IS DISTINCT FROM 'false' AND c.name IN"
                " (SELECT s.name || CASE s.shards WHEN 1 THEN '' ELSE '.shard-' || n END"
                " FROM generate_series(0, s.shards - 1) AS n)) AS has_published"
                " FROM {} AS s WHERE s.system_identifier ="
                " (SELECT c.system_identifier::text FROM pg_control_system() AS c)"
                " AND s.database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database()))"
                " SELECT shards, min(name) FROM known WHERE shards > 1 OR has_published"
                " OR NOT (SELECT bool_or(has_published) FROM known)"
                " GROUP BY 1 ORDER BY 1 DESC"
            ).format(sql.Identifier(schema, "claims"), table)
        )
        .fetchall()
    )
    if len(rows) > 1:
        (most, one), (fewer, other), *_ = rows
        forget = sql.SQL("DELETE FROM {} WHERE name = …").format(table).as_string(conn)
        msg = (
            f"outbox {one!r} is published with shards = {most}, and {other!r} with shards = "
            f"{fewer}; but the write-ahead log is read under one name. Forget the others, if "
            f"there are no relays of that name any more: {forget}; the capture was not changed"
        )
        raise DovecoteError(msg)
    return rows[0][0] if rows else 1


def _require_none_restored(conn: Connection[Any], schema: str, *, done: str) -> None:
    """
    Check that there are no waiting rows that a change of the capture would lose or publish again.
    """
    events = sql.Identifier(schema, "events")
    if (xid := restored.foreign(conn, events)) is not None:
        msg = (
            f"{events.as_string(conn)} holds events of transaction {xid}, which is not over on "
            f"this server: they come from another server's dump; {done}, or run, with the relays "
            f"stopped, `{restored.remedy(events)}`; the capture was not changed"
        )
        raise DovecoteError(msg)


def _require_logical(conn: Connection) -> None:
    row = cursor(conn).execute(WAL_LEVEL).fetchone()
    if row is None or not slots.can_decode(*row):
        msg = (
            f"the server has wal_level = {row[0] if row else None}: set it to logical and "
            "restart the server; the capture was not changed"
        )
        raise DovecoteError(msg)


def _remember(conn: Connection, schema: str, begins_at: str, *, before: str | None) -> None:
    """
    Remember where all slots begin, and which rows relays have to publish from the table first.
    """
    reading = _reading(schema)
    cursor(conn).execute(
        sql.SQL(
            "UPDATE {} SET state = 'wal', changed = pg_current_xact_id(), begins_at = %s,"
            " before = %s"
        ).format(reading),
        [begins_at, before],
    )
    found = cursor(conn).execute(
        "SELECT FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'begins_in'",
        [reading.as_string(conn)],
    )
    # An older schema does not record the database.
    if found.fetchone() is not None:
        cursor(conn).execute(sql.SQL("UPDATE {} SET begins_in = {}").format(reading, _HERE))


def _require_slot_of(conn: Connection, schema: str, *, shard: int, shards: int) -> None:
    """
    Check that this shard is to have a slot; otherwise the command would make a wrong one anew.
    """
    if installed(conn, schema).state != "table" and shard < shards:
        return
    pieces = "one piece, whose slot is that of shard 0" if shards == 1 else f"{shards} shards"
    msg = (
        f"there is no slot of shard {shard} to make anew: this outbox is published in {pieces}"
        if shard >= shards
        else "no slot is to be made anew: events are written to the table"
    )
    msg += "; nothing was changed"
    raise DovecoteError(msg)


def _remember_anew(
    conn: Connection, schema: str, names: list[str], *, begins_at: str, before: str
) -> None:
    """
    Remember where the slots begin that were made with a gap accepted; leave others as they are.
    """
    query = "UPDATE {} SET anew = anew || jsonb_object(%s::text[], %s::text[])"
    places = [f"{begins_at} {before}"] * len(names)
    cursor(conn).execute(sql.SQL(query).format(_reading(schema)), [names, places])


def _set_mode(conn: Connection, schema: str, *, wal: bool) -> None:
    query = "CREATE OR REPLACE FUNCTION {}() RETURNS boolean LANGUAGE sql IMMUTABLE AS {}"
    cursor(conn).execute(
        sql.SQL(query).format(
            sql.Identifier(schema, "writes_to_wal"), sql.Literal(f"SELECT {str(wal).lower()}")
        )
    )
