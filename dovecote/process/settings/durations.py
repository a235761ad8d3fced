"""Durations as settings write them: "250ms", "60s", "3m", "2h"."""

import re
from datetime import timedelta

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def duration(value: object) -> object:
    """Return the `timedelta` that "250ms", "60s", "3m" or "2h" stands for."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        msg = f'{value!r} is not a duration; write "250ms", "60s", "3m" or "2h"'
        raise ValueError(msg)
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        msg = f"{value!r} is too long a duration"
        raise ValueError(msg) from None


def positive(value: timedelta) -> timedelta:
    """Return `value`, which must be longer than 0."""
    if value <= timedelta(0):
        msg = "must be longer than 0"
        raise ValueError(msg)
    return value


def of_transactions(value: timedelta) -> timedelta:
    """Return `value`, which Kafka must take as the timeout of a transaction."""
    if not timedelta(seconds=1) <= value <= timedelta(hours=596):
        msg = "must be from 1s to 596h: Kafka takes no other timeout of transactions"
        raise ValueError(msg)
    return value
