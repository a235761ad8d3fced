"""Read the timestamps of records, in whatever unit their producers write them."""

from datetime import UTC, datetime

END_OF_TIME = 253_402_300_800_000
"""The year 10000, in milliseconds."""


def milliseconds(timestamp: int) -> int | None:
    """
    Return a record's timestamp in milliseconds since 1970; None: it is not a time.

    Some producers write microseconds or nanoseconds. Taken as milliseconds, these are years after
    9999, so they cannot be mistaken for any other time.
    """
    if 0 <= timestamp < END_OF_TIME:
        return timestamp
    for unit in (1_000, 1_000_000):
        if 0 <= timestamp < END_OF_TIME * unit:
            return timestamp // unit
    return None  # Kafka's -1 says that there is none


def time_of(timestamp: int) -> datetime | None:
    """Return the time that a record's timestamp says; None: it says none."""
    if 0 <= timestamp < END_OF_TIME:
        return datetime.fromtimestamp(timestamp / 1000, UTC)
    since = milliseconds(timestamp)
    return None if since is None else datetime.fromtimestamp(since / 1000, UTC)
