"""Positions in Postgres's write-ahead log: numbers here, `16/B374D848` in its texts."""

NOWHERE = "0/0"
"""The end of a log that the server does not report."""

NOT_REPORTED = (
    "the server does not say where its write-ahead log ends: the relay notices commits lost in a "
    "failover only when something is missing, and does not wait until commits of sessions with "
    "`synchronous_commit = off` are on disk"
)

GRANT = (
    "on a server that has them, grant the relay's role EXECUTE on pg_current_wal_lsn, "
    "pg_current_wal_flush_lsn, pg_current_wal_insert_lsn and pg_walfile_name"
)


def parse_lsn(text: str) -> int:
    """
    Return the position that `text` denotes.

    Raises:
        ValueError: `text` is not a position.
    """
    high, low = text.split("/")
    lsn = (int(high, 16) << 32) | int(low, 16)
    if not 0 <= int(low, 16) < 1 << 32 or not 0 <= lsn < 1 << 64:
        msg = f"{text!r} is not a position in the write-ahead log"
        raise ValueError(msg)
    return lsn


def format_lsn(lsn: int) -> str:
    """Return Postgres's text for `lsn`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


_WITHIN = 64


def log_number(commit: int, index: int) -> int:
    """
    Return the number of the event at `index` in the transaction that commits at `commit`.

    Numbers rise with the places in the log. Each belongs to one event, and none is that of a row
    of a table.
    """
    return commit << _WITHIN | index


def log_place(number: int) -> tuple[int, int]:
    """
    Return the commit and the index of a number; for a row of a table, 0 and the number itself.
    """
    return number >> _WITHIN, number & ((1 << _WITHIN) - 1)
