"""Find the event of each record, and its key."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from outbox.envelope import Record, require_readable
from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.config import Key
from spark_jobs.operators.aggregation.formats import formats
from spark_jobs.operators.aggregation.keys import key_of
from spark_jobs.operators.aggregation.scripts.scripts import Scripts

_AT_ONCE = 64
"""The number of events about which the key script is asked in one call."""
Keyed: TypeAlias = bytes | DovecoteError | None
"""A key, or the reason why there is none; None: the record has none."""


class Keying:
    """Reads events and finds their keys."""

    def __init__(
        self, key: Key, scripts: Scripts, decode: Callable[[bytes | None, str | None], Any]
    ) -> None:
        self._key_of, self._scripts, self._decode = key_of(key), scripts, decode

    def keyed(self, records: Sequence[Record]) -> Iterator[tuple[Any, Keyed]]:
        """Yield the event of each record with its key, or with the reason why there is none."""
        if self._key_of is not None:
            yield from map(self._keyed, records)
            return
        for start in range(0, len(records), _AT_ONCE):
            yield from self._keyed_by_script(records[start : start + _AT_ONCE])

    def _keyed(self, record: Record) -> tuple[Any, Keyed]:
        try:
            require_readable(record)
            event = self._decode(record.value, formats.schema_name(record))
            return event, self._key_of(record) if self._key_of is not None else None
        except DovecoteError as error:
            return None, error

    def _keyed_by_script(self, records: Sequence[Record]) -> Iterator[tuple[Any, Keyed]]:
        # Without a function for the key, each entry is only the event, or the reason why there is
        # none.
        read = [self._keyed(record) for record in records]
        good = [n for n, (_, error) in enumerate(read) if error is None]
        keys = self._scripts.keys([read[n][0] for n in good], [records[n] for n in good])
        found: dict[int, Keyed] = dict(zip(good, keys, strict=True))
        for number, (event, error) in enumerate(read):
            yield event, found.get(number, error)
