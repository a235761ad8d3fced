"""Write Postgres's times in the form that CloudEvents asks for."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def format_time(microseconds: int) -> str:
    """Return the RFC 3339 text of a time in microseconds since 2000-01-01 UTC."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{until_second(seconds)}{rest:06d}Z"


@lru_cache(maxsize=4096)
def until_second(seconds: int) -> str:
    """Return the text of a time in seconds since 2000-01-01 UTC, up to its decimals."""
    return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]}."
