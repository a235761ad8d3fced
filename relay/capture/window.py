"""The rows of the table that a snapshot does not see, as SQL."""

from psycopg import sql

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


def params(since: Snapshot) -> dict[str, object]:
    """Return the parameters of both, as text."""
    return {"xmax": str(since.xmax), "xip": [str(xid) for xid in since.xip]}
