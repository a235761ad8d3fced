"""Make the headers of one record after the other: what neighbours share is made once."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from outbox.envelope import ID, SUBJECT, TIME, kind_headers
from relay.capture.batch import Row
from relay.postgres_time import until_second

Header: TypeAlias = tuple[str, str | bytes | None]

_SECOND = 1_000_000


def headers(rows: Iterable[Row]) -> Iterator[list[Header]]:
    """Yield the headers of each row's record, as `outbox.envelope.encode` makes an event's."""
    second, until, kind = 0, until_second(0), None
    shared: tuple[Header, ...] = ()
    for _, id_, at, _, _, _, type_, source, subject, media, names, values in rows:
        rest = at - second
        if not 0 <= rest < _SECOND:
            rest = at % _SECOND
            second = at - rest
            until = until_second(second // _SECOND)
        if (type_, source, media) != kind:
            kind = type_, source, media
            shared = kind_headers(type_, source, media)
        # `zfill` takes half the time of a format with a width.
        made: list[Header] = [(ID, id_), (TIME, f"{until}{str(rest).zfill(6)}Z"), *shared]
        if subject is not None:
            made.append((SUBJECT, subject))
        if names:
            made.extend(zip(names, values, strict=True))
        yield made
