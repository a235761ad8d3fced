"""The rows of the table that a snapshot does not see, and those of a shard, as SQL."""

from psycopg import sql

from relay.rules.places.snapshot import Snapshot
from relay.rules.sharding import Shard

ANY_SIZE = 1 << 30
"""No value of Postgres is larger."""

COLUMNS = sql.SQL(
    'position, id::text, "time", topic, key, value, type, source, subject, content_type,'
    " header_names, header_values"
)
"""What is read of an event, in the order of `relay.rules.batch.Row`."""

LENGTH = sql.SQL(
    "GREATEST(octet_length(value), octet_length(key), octet_length(type), octet_length(source),"
    " octet_length(subject), octet_length(content_type), pg_column_size(header_names),"
    " pg_column_size(header_values))"
)
"""The most that one column of an event holds: asked for, it is not read."""

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
The key and what follows it, but nothing larger than the parameter `largest`.

Where there is such a thing the type is NULL.
"""


# Of rows that were written here this says nothing: what a statement finds, its snapshot sees. What
# was restored from another server may have the id of a transaction that is open here, or that is
# to come, and would be found by every tick until it is over: such a row waits. Asked once, and not
# for each row.
_IS_OVER = sql.SQL("pg_visible_in_snapshot(xid, (SELECT pg_current_snapshot()))")


def behind(events: sql.Identifier, since: Snapshot) -> sql.Composed:
    """
    Return the rows that the statement sees and `since` does not, as a FROM item.

    A row that is visible now was invisible to `since` if its transaction began later or was
    running then. Two arms instead of an OR: each is one scan of the index on xid.
    """
    if not since.xip:
        return sql.SQL("{} AS new").format(later(events))
    running = sql.SQL("SELECT * FROM {} WHERE xid = ANY (%(xip)s::text[]::xid8[]) AND {}").format(
        events, _IS_OVER
    )
    return sql.SQL("({} UNION ALL {}) AS new").format(later(events), running)


def later(events: sql.Identifier) -> sql.Composed:
    """Return the rows whose transactions began behind the parameter `xmax`."""
    # The other end is for the index: rows of transactions to come are not even looked at.
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
    tells: bool = True,
) -> sql.Composed:
    """
    Return the statement that a tick is: one row on the window, and its rows if they are few.

    The first row has 1 for the position if they are, for the id what the statement sees, for the
    topic a position of the log that nothing it sees lies behind, for the type where events are
    read, for the source up to where the log is on disk, and for the subject an event of the newest
    transaction of a shard. The others come as they are found, and have their transactions behind
    their columns; of a shard, whose rows do not tell, the first has the newest one there.
    Parameters: those of `params`, and `small` and `bytes`, more than which is not few.
    """
    is_part = shard is not None and shard.of > 1
    # Materialized: a look at the outbox is one at five tables, and costs more than its rows. To
    # sort them here, and to look for the newest among them, takes a quarter more.
    return sql.SQL(
        "WITH found AS MATERIALIZED"
        " (SELECT {columns}, xid FROM {new} WHERE {own} LIMIT %(small)s + 1),"
        " tick AS MATERIALIZED"
        " (SELECT count(*) <= %(small)s AND coalesce(sum({length}), 0) <= %(bytes)s"
        " AS few,"
        # In the same snapshot: what was written after a switch must not overtake the log.
        # A shard may be back in the table before the others; an older schema knows of none.
        # Here, for tables are locked as they stand, and an upgrade locks the events' first.
        " (SELECT CASE WHEN state <> 'leaving' THEN state"
        " WHEN to_jsonb(r) -> 'departed' @> {number} THEN 'table' ELSE state END"
        " FROM {reading} AS r) AS state FROM found)"
        " SELECT few::int, pg_current_snapshot()::text, NULL, {written},"
        " NULL, NULL, state, {flushed}, {event}, NULL, NULL, NULL, {newest}"
        " FROM tick"
        # Asked once, and not joined to each row.
        " UNION ALL (SELECT * FROM found WHERE (SELECT few FROM tick))"
    ).format(
        new=behind(events, since),
        newest=_subquery(newest(events, sql.SQL("w.xid")) if is_part else None),
        event=_subquery(newest(events, _EVENT) if is_part else None),
        own=own(shard),
        columns=COLUMNS,
        length=LENGTH,
        reading=reading,
        number=sql.Literal(str(shard.number if shard else 0)),
        written=sql.SQL("pg_current_wal_insert_lsn()::text" if tells else "NULL"),
        flushed=sql.SQL("pg_current_wal_flush_lsn()::text" if tells else "NULL"),
    )


def _subquery(query: sql.Composed | None) -> sql.Composable:
    return sql.SQL("({})").format(query) if query else sql.SQL("NULL")


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
