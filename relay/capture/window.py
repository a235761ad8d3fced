"""The rows of the table that a snapshot does not see, and those of a shard, as SQL."""

from psycopg import sql

from relay.sharding import Shard
from relay.snapshot import Snapshot

COLUMNS = sql.SQL(
    'position, id::text, "time", topic, key, value, type, source, subject, content_type,'
    " header_names, header_values"
)
"""What is read of an event, in the order of `relay.capture.batch.Row`."""
_NAMES = sql.SQL(COLUMNS.as_string().replace("::text", ""))


def behind(events: sql.Identifier, since: Snapshot) -> sql.Composed:
    """
    Return the rows that the statement sees and `since` does not, as a FROM item.

    A row that is visible now was invisible to `since` if its transaction began later or was
    running then. Two arms instead of an OR: each is one scan of the index on xid.
    """
    if not since.xip:
        return sql.SQL("{} AS new").format(later(events))
    running = sql.SQL("SELECT * FROM {} WHERE xid = ANY (%(xip)s::text[]::xid8[])").format(events)
    return sql.SQL("({} UNION ALL {}) AS new").format(later(events), running)


def later(events: sql.Identifier) -> sql.Composed:
    """Return the rows whose transactions began behind the parameter `xmax`."""
    # The other end keeps out rows that were restored from another server, and scans no more.
    return sql.SQL(
        "(SELECT * FROM {} WHERE xid >= %(xmax)s::text::xid8"
        " AND xid < pg_snapshot_xmax(pg_current_snapshot()))"
    ).format(events)


def tick(
    events: sql.Identifier,
    reading: sql.Identifier,
    since: Snapshot,
    *,
    shard: Shard | None,
) -> sql.Composed:
    """
    Return the statement that a tick is: one row on the window, and its rows if they are few.

    The first row says whether they are (-1) or not (-2), what the statement sees, the newest
    transaction among them, the end of the log, and where events are read. Parameters: those of
    `params`, and `small` and `bytes`, more than which is not few.
    """
    # Materialized: a look at the outbox is one at five tables, and costs more than its rows.
    # Qualified: a bare `xid` would be the text of its own line, and sort 999 over 1000.
    by_xid = sql.SQL("(SELECT w.xid::text FROM {} AS w ORDER BY w.xid DESC LIMIT 1)")
    newest = by_xid.format(later(events))
    if shard is None or shard.of == 1:
        # All that is new, if it is few. Of a shard not: it must not look at others' rows again.
        found = sql.SQL("(SELECT * FROM found WHERE xid >= %(xmax)s::text::xid8)")
        newest = sql.SQL("CASE WHEN rows <= %(small)s THEN {} ELSE {} END").format(
            by_xid.format(found), newest
        )
    return sql.SQL(
        "WITH found AS MATERIALIZED"
        " (SELECT {columns}, xid FROM {new} WHERE {own} LIMIT %(small)s + 1),"
        " tick AS MATERIALIZED"
        " (SELECT count(*) AS rows, coalesce(sum(octet_length(value)), 0) AS bytes FROM found)"
        " SELECT CASE WHEN rows <= %(small)s AND bytes <= %(bytes)s THEN -1 ELSE -2 END,"
        " pg_current_snapshot()::text, NULL, {newest}, NULL, NULL,"
        " pg_current_wal_flush_lsn()::text,"
        # In the same snapshot: what was written after a switch must not overtake the log.
        # A shard may be back in the table before the others; an older schema knows of none.
        " (SELECT CASE WHEN state <> 'leaving' THEN state"
        " WHEN to_jsonb(r) -> 'departed' @> {number} THEN 'table' ELSE state END"
        " FROM {reading} AS r), NULL, NULL, NULL, NULL"
        " FROM tick"
        " UNION ALL (SELECT {names} FROM found, tick"
        " WHERE rows <= %(small)s AND bytes <= %(bytes)s ORDER BY position)"
    ).format(
        new=behind(events, since),
        newest=newest,
        own=own(shard),
        columns=COLUMNS,
        names=_NAMES,
        reading=reading,
        number=sql.Literal(str(shard.number if shard else 0)),
    )


def own(shard: Shard | None) -> sql.Composable:
    """Return the condition that a row is of `shard`, as `shard_of` has it; None: of the outbox."""
    if shard is None or shard.of == 1:
        return sql.SQL("true")
    # Here, so that the rows of others are not sent: reading them costs more than the digest.
    return sql.SQL(
        "('x' || encode(substring(sha256(coalesce(key, convert_to(id::text, 'UTF8')))"
        " FROM 1 FOR 4), 'hex'))::bit(32)::bigint %% {of} = {number}"
    ).format(of=sql.Literal(shard.of), number=sql.Literal(shard.number))


def params(since: Snapshot) -> dict[str, object]:
    """Return the parameters of both, as text."""
    return {"xmax": str(since.xmax), "xip": [str(xid) for xid in since.xip]}
