"""The table's rows that a snapshot does not see, and the rows of one shard, as SQL."""

from psycopg import sql

from relay.rules.places.snapshot import Snapshot
from relay.rules.sharding import Shard

ANY_SIZE = 1 << 30
"""No Postgres value is larger."""

COLUMNS = sql.SQL(
    'position, id::text, "time", topic, key, value, type, source, subject, content_type,'
    " header_names, header_values"
)
"""The columns of an event that are read, in the order of `relay.rules.row.Row`."""

LENGTH = sql.SQL(
    "GREATEST(octet_length(value), octet_length(key), octet_length(type), octet_length(source),"
    " octet_length(subject), octet_length(content_type), pg_column_size(header_names),"
    " pg_column_size(header_values))"
)
"""The size of an event's largest column; computing it does not read the column."""

SPARED = sql.SQL(
    "{key}, {value},"
    " CASE WHEN {length} <= %(largest)s THEN type END, {source}, {subject}, {content_type},"
    " {names}, {values}"
).format(
    length=LENGTH,
    **{
        name: sql.SQL("CASE WHEN {}({}) <= %(largest)s THEN {} END").format(
            sql.SQL(size), sql.SQL(column), sql.SQL(column)
        )
        for name, column, size in (
            *((each, each, "octet_length") for each in ("key", "value", "source", "subject")),
            ("content_type", "content_type", "octet_length"),
            ("names", "header_names", "pg_column_size"),
            ("values", "header_values", "pg_column_size"),
        )
    },
)
"""
The key and the columns after it; a column larger than the parameter `largest` is NULL.

If there is such a column, the type is NULL as well.
"""


# For rows written on this server the condition is always true: a statement's snapshot sees what it
# finds. Rows restored from another server may carry the id of a transaction that is open here or
# does not exist yet; without the condition, every tick would find them until it is over. So such a
# row waits. The snapshot is asked for once, not for each row.
_IS_OVER = sql.SQL("pg_visible_in_snapshot(xid, (SELECT pg_current_snapshot()))")


def after(events: sql.Identifier, since: Snapshot) -> sql.Composed:
    """
    Return the rows that the statement sees and `since` does not, as a FROM item.

    A row that is visible now was invisible to `since` if its transaction began later or was
    running then. There are two arms instead of an OR, so that each is one scan of the index on
    xid.
    """
    if not since.xip:
        return sql.SQL("{} AS new").format(later(events))
    running = sql.SQL("SELECT * FROM {} WHERE xid = ANY (%(xip)s::text[]::xid8[]) AND {}").format(
        events, _IS_OVER
    )
    return sql.SQL("({} UNION ALL {}) AS new").format(later(events), running)


def later(events: sql.Identifier) -> sql.Composed:
    """Return the rows whose transactions are not older than the parameter `xmax`."""
    # The upper bound is for the index: rows of future transactions are not even looked at.
    return sql.SQL(
        "(SELECT * FROM {} WHERE xid >= %(xmax)s::text::xid8"
        " AND xid < pg_snapshot_xmax(pg_current_snapshot()) AND {})"
    ).format(events, _IS_OVER)


_NEWEST = sql.SQL("w.xid, w.position, w.id::text")
_EVENT = sql.SQL("w.position || '/' || w.id")


def newest(events: sql.Identifier, what: sql.SQL = _NEWEST) -> sql.Composed:
    """Return the statement for the newest transaction in `later`, and one of its rows."""
    return sql.SQL("SELECT {} FROM {} AS w ORDER BY w.xid DESC LIMIT 1").format(
        what, later(events)
    )


def tick(
    events: sql.Identifier,
    reading: sql.Identifier,
    since: Snapshot,
    *,
    shard: Shard | None,
    has_end: bool = True,
) -> sql.Composed:
    """
    Return the statement of a tick: one row about the window, and its rows if they are few.

    The first row's columns have another meaning: the position is 1 if the rows are few, the id is
    what the statement sees, and the topic is a position in the log after all that it sees. The
    type is where events are read, the source is how far the log is on disk, and the subject is an
    event of a shard's newest transaction. The other rows are unsorted, with their transactions
    after the columns. For a shard, whose rows do not show it, the first row has the newest
    transaction there. The parameters are those of `params`, and `small` and `bytes`: more than
    these is not few.
    """
    is_part = shard is not None and shard.of > 1
    # Materialized: a look at the outbox is a look at five tables, and costs more than its rows.
    # Sorting the rows here, and finding the newest among them, would take a quarter longer.
    return sql.SQL(
        "WITH found AS MATERIALIZED"
        " (SELECT {columns}, xid FROM {new} WHERE {own} LIMIT %(small)s + 1),"
        " tick AS MATERIALIZED"
        " (SELECT count(*) <= %(small)s AND coalesce(sum({length}), 0) <= %(bytes)s"
        " AS few,"
        # In the same snapshot, because events written after a switch must not overtake the log.
        " (SELECT CASE WHEN state <> 'leaving' THEN state"
        " WHEN to_jsonb(r) -> 'departed' @> {number} THEN 'table' ELSE state END"
        " FROM {reading} AS r) AS state FROM found)"
        " SELECT few::int, pg_current_snapshot()::text, NULL, {written},"
        " NULL, NULL, state, {flushed}, {event}, NULL, NULL, NULL, {newest}"
        " FROM tick"
        # Evaluated once, not joined to each row.
        " UNION ALL (SELECT * FROM found WHERE (SELECT few FROM tick))"
    ).format(
        new=after(events, since),
        newest=_subquery(newest(events, sql.SQL("w.xid")) if is_part else None),
        event=_subquery(newest(events, _EVENT) if is_part else None),
        own=own(shard),
        columns=COLUMNS,
        length=LENGTH,
        reading=reading,
        number=sql.Literal(str(shard.number if shard else 0)),
        written=sql.SQL("pg_current_wal_insert_lsn()::text" if has_end else "NULL"),
        flushed=sql.SQL("pg_current_wal_flush_lsn()::text" if has_end else "NULL"),
    )


def _subquery(query: sql.Composed | None) -> sql.Composable:
    return sql.SQL("({})").format(query) if query else sql.SQL("NULL")


def own(shard: Shard | None) -> sql.Composable:
    """Return the condition that a row belongs to `shard`, by the rule of `shard_of`."""
    if shard is None or shard.of == 1:
        return sql.SQL("true")
    # In SQL, so that other shards' rows are not sent: reading them costs more than the digest.
    return sql.SQL(
        "('x' || encode(substring(sha256(coalesce(key, convert_to(id::text, 'UTF8')))"
        " FROM 1 FOR 4), 'hex'))::bit(32)::bigint %% {of} = {number}"
    ).format(of=sql.Literal(shard.of), number=sql.Literal(shard.number))


def params(since: Snapshot) -> dict[str, object]:
    """Return the parameters of `after` and `later`, as text."""
    return {"xmax": str(since.xmax), "xip": [str(xid) for xid in since.xip]}
