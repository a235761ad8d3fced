"""The time that an option names."""

from datetime import UTC, datetime

import typer

EXAMPLE = "2026-02-01T09:30+01:00"


def time_of(given: str) -> datetime:
    """
    Return the time that the value of an option names, in UTC where it names no offset.

    Raises:
        BadParameter: it is not a time.
    """
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        msg = f"{given!r} is not a time; write 2026-02-01, or {EXAMPLE}"
        raise typer.BadParameter(msg) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
