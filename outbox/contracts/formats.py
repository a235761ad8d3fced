"""The formats of texts in schemas, as `outbox.values` writes them."""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

_DURATION = re.compile(
    r"-?P(?=.)(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"
)
_TIME_OF_DAY = re.compile(r"\d\d:\d\d.*", re.DOTALL)


def _date_time(value: Any) -> bool:  # noqa: ANN401  # whatever the value is
    # Without an offset, too: a datetime may have no time zone.
    return not isinstance(value, str) or ("T" in value and bool(datetime.fromisoformat(value)))


def _date(value: Any) -> bool:  # noqa: ANN401  # as above
    return not isinstance(value, str) or bool(date.fromisoformat(value))


def _time(value: Any) -> bool:  # noqa: ANN401  # as above
    return not isinstance(value, str) or (
        bool(_TIME_OF_DAY.fullmatch(value)) and time.fromisoformat(value) is not None
    )


def _uuid(value: Any) -> bool:  # noqa: ANN401  # as above
    return not isinstance(value, str) or bool(UUID(value))


def _duration(value: Any) -> bool:  # noqa: ANN401  # as above
    return not isinstance(value, str) or bool(_DURATION.fullmatch(value))


def _decimal(value: Any) -> bool:  # noqa: ANN401  # as above
    try:
        return not isinstance(value, str) or Decimal(value).is_finite()
    except InvalidOperation:
        return False


CHECKED: Mapping[str, Callable[[Any], bool]] = {
    "date-time": _date_time,
    "date": _date,
    "time": _time,
    "uuid": _uuid,
    "duration": _duration,
    "decimal": _decimal,
}
"""Tests whether a value has a format; each may raise `ValueError` in place of False."""
