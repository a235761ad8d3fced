"""Time zones by their IANA names."""

from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


@lru_cache(maxsize=256)
def zone(name: str) -> ZoneInfo:
    """
    Return the time zone `name`.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        msg = f'there is no time zone "{name}"; write an IANA name, such as "Europe/Berlin"'
        raise ValueError(msg) from error
