"""The time that an option names."""

from datetime import UTC, datetime

from outbox.errors import BadSettings


def time_of(option: str, given: str | None) -> datetime | None:
    """
    Return the time that an option names, in UTC where it names no offset.

    Raises:
        BadSettings: it is not a time.
    """
    if given is None:
        return None
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        msg = f"{option} {given!r} is not a time; write 2026-02-01, or 2026-02-01T09:30+01:00"
        raise BadSettings(msg) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
