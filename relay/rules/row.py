"""One event between Postgres and Kafka: a tuple, whose values are read by the names here."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

Row: TypeAlias = tuple[
    int, str, int, str, bytes | None, bytes | None, str | Any, str | Any, str | None, str | None,
    Sequence[str] | None, Any,
]  # fmt: skip
"""
Position, id, time, topic, key, value, type, source, subject, content type, names and values of
headers: a plain tuple, as the driver makes it. To make an instance of a named class of each, and
to read that, costs the relay a twentieth of its throughput.
"""

POSITION: Final = 0
"""The position in the table, or what `log_number` makes of the place in the log."""
ID: Final = 1
TIME: Final = 2
"""
In microseconds since 2000-01-01 UTC, as Postgres holds it: parsing 300,000 datetimes would cost as
much as publishing the events.
"""
TOPIC: Final = 3
KEY: Final = 4
VALUE: Final = 5
TYPE: Final = 6
"""None if the event was too large to be read; others may be None as well then."""
SUBJECT: Final = 8
HEADER_NAMES: Final = 10
HEADER_VALUES: Final = 11

Identity: TypeAlias = tuple[int, str]
"""Position and id of an event, by which it is known when it is read again."""

Key: TypeAlias = tuple[str, bytes | None]
"""A key of a topic, which can be held."""

identity: Callable[[Row], Identity] = itemgetter(POSITION, ID)
topic_of: Callable[[Row], str] = itemgetter(TOPIC)
key_of: Callable[[Row], Key] = itemgetter(TOPIC, KEY)
content_of: Callable[[Row], tuple[str, bytes | None, bytes | None]] = itemgetter(TOPIC, KEY, VALUE)


def is_left(row: Row) -> bool:
    """Return whether an event was too large to be read, and was left in its table."""
    return row[TYPE] is None


def size_of(row: Row) -> int:
    """Return roughly the bytes of an event: those of its key, value, headers and subject."""
    size = len(row[KEY] or b"") + len(row[VALUE] or b"")
    if row[HEADER_NAMES] or row[SUBJECT]:
        size += len(row[SUBJECT] or "") + sum(map(len, row[HEADER_NAMES] or ()))
        size += sum(map(len, filter(None, row[HEADER_VALUES] or ())))
    return size
