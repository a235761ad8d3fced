"""The rows of the table that a snapshot does not see, and those of a shard, as SQL."""

from psycopg import sql

from relay.sharding import Shard
from relay.snapshot import Snapshot


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
    columns: sql.SQL,
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
    # `position + 0`: sort the window, never walk the whole table along its primary key.
    return sql.SQL(
        "WITH tick AS MATERIALIZED (SELECT count(*) AS rows,"
        " coalesce(sum(octet_length(value)), 0) AS bytes FROM"
        " (SELECT value FROM {new} WHERE {own} LIMIT %(small)s + 1) AS w)"
        " SELECT CASE WHEN rows <= %(small)s AND bytes <= %(bytes)s THEN -1 ELSE -2 END,"
        " pg_current_snapshot()::text, NULL, (SELECT later.xid::text FROM {later} AS later"
        # Qualified: a bare `xid` would be the text of the line above, and sort 999 over 1000.
        " ORDER BY later.xid DESC LIMIT 1), NULL, NULL, pg_current_wal_flush_lsn()::text,"
        # In the same snapshot: what was written after a switch must not overtake the log.
        # A shard may be back in the table before the others; an older schema knows of none.
        " (SELECT CASE WHEN state <> 'leaving' THEN state"
        " WHEN to_jsonb(r) -> 'departed' @> {number} THEN 'table' ELSE state END"
        " FROM {reading} AS r), NULL, NULL, NULL, NULL"
        " FROM tick"
        " UNION ALL (SELECT {columns} FROM {new}, tick"
        " WHERE rows <= %(small)s AND bytes <= %(bytes)s AND {own} ORDER BY position + 0)"
    ).format(
        new=behind(events, since),
        later=later(events),
        own=own(shard),
        columns=columns,
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
