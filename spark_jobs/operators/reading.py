"""Read from a record what an operator needs: key, time, and the part of the value that it uses."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, TypeAlias

from pydantic_core import from_json
from pydantic_core import to_json as text_to_json

from dedup.replay.trace import to_json
from dedup.rules.json_text import loads, loads_all
from outbox import envelope
from outbox.envelope import Record
from outbox.errors import DovecoteError
from outbox.timestamps import END_OF_TIME, time_of
from outbox.timestamps import milliseconds as of_record
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.sessions import aggregates
from spark_jobs.operators.settings import (
    DelaySettings,
    PairingSettings,
    SessionsSettings,
    WindowedSettings,
    milliseconds,
)
from spark_jobs.operators.step import Ahead, Failed, Input, Inputs

Read: TypeAlias = Callable[[Record, Any], Input | Failed]
"""Makes an operator's input of a record; the second argument comes back with it."""

ReadMany: TypeAlias = Callable[
    [Iterable[Sequence[Any]], Iterable[Any], list[Failed]], Iterator[Input]
]
"""The same for many records, given as their fields; unreadable ones go into the list."""

OperatorSettings: TypeAlias = (
    AggregationSettings | DelaySettings | PairingSettings | SessionsSettings
)

_TIME = itemgetter(1)

# Kafka and Spark have no later times, and state and results cannot express any.
_MOST = 2**63 - 1


class Unreadable(DovecoteError):
    """A record lacks something that the operator needs."""


def reader(settings: OperatorSettings) -> Read:
    """Return the function that reads a record for the operator of `settings`."""
    read = many_reader(settings)

    def one(record: Record, row: Any) -> Input | Failed:  # noqa: ANN401  # the caller's
        failed: list[Failed] = []
        return next(read([record], [row], failed), None) or failed[0]

    return one


def many_reader(settings: OperatorSettings) -> ReadMany:
    """Return the function that reads records for the operator of `settings`."""
    if isinstance(settings, AggregationSettings):
        return _whole
    if isinstance(settings, DelaySettings):
        return _delayed
    if isinstance(settings, PairingSettings):
        fields = {side.topic: side.field for side in settings.sides.values()}
        return _Windowed(settings, fields, parses=True)
    return _Windowed(
        settings, {}, parses=aggregates.load(settings.aggregate).reads_value, field=settings.field
    )


def read_columns(
    read: ReadMany, columns: Sequence[Sequence[Any]], failed: list[Failed]
) -> Sequence[Input]:
    """Return the inputs of the records in `columns`, each with its number, as `read` does."""
    found = read.whole(columns) if isinstance(read, _Windowed) else None
    if found is not None:
        return found
    return list(read(zip(*columns, strict=True), count(), failed))


def max_lag(settings: OperatorSettings) -> int | None:
    """Return how old a record may be without the source counting as lagging; None: any age."""
    if isinstance(settings, AggregationSettings):
        return settings.step.max_lag
    if isinstance(settings, WindowedSettings) and settings.max_lag is not None:
        return milliseconds(settings.max_lag)
    return None


def max_ahead(settings: OperatorSettings) -> int | None:
    """Return how far ahead of the wall clock a record may be; None: as far as it likes."""
    if isinstance(settings, AggregationSettings):
        return settings.step.max_ahead
    return None if settings.max_ahead is None else milliseconds(settings.max_ahead)


def believable(
    inputs: Sequence[Input], now: int, most: int | None, ahead: list[Ahead]
) -> Sequence[Input]:
    """
    Return the records that are at most `most` ahead of `now`; the others go into `ahead`.

    A clock that is wrong must not move the time of its key, or of all keys. With `now` 0, as in a
    trace that does not say it, nothing is known to be ahead.
    """
    if most is None or not now:
        return inputs
    limit = now + most
    times = inputs.times if isinstance(inputs, Inputs) else map(_TIME, inputs)
    if max(times, default=0) <= limit:  # the usual case
        return inputs
    ahead += [Ahead(each, _ahead(each.time, now, most)) for each in inputs if each[1] > limit]
    return [each for each in inputs if each[1] <= limit]


def _ahead(time: int, now: int, most: int) -> str:
    return (
        f"its time, {_shown(time)}, is ahead of the clock, {_shown(now)}, by more than max_ahead "
        f"({most} ms)"
    )


def _shown(time: int) -> str:
    found = time_of(time) if time < END_OF_TIME else None
    return f"{time} ms" if found is None else found.isoformat(timespec="seconds")


def key_of(text: bytes, settings: WindowedSettings) -> str | list[Any]:
    """Return a key in readable form: as text, or as the list of its fields."""
    found: str | list[Any] = (
        text.decode(errors="replace") if settings.key == "record" else from_json(text)
    )
    return found


def keys_of(texts: Sequence[bytes], settings: WindowedSettings) -> list[Any]:
    """Return keys in readable form, as `key_of` does each."""
    if settings.key == "record":
        return [each.decode(errors="replace") for each in texts]
    return list(map(from_json, texts))


def field_keys(names: tuple[str, ...], values: Iterable[bytes | None]) -> list[bytes | None]:
    """Return the keys of records by their values; None: it has none, or cannot be read."""
    keys = _Keys(names)
    found: list[bytes | None] = []
    for raw in values:
        try:
            found.append(keys.of(_parsed(raw)))
        except (ValueError, DovecoteError):
            found.append(None)
    return found


def _parsed(raw: bytes | None) -> Any:  # noqa: ANN401  # JSON
    return None if raw is None else loads(raw)


class _Windowed:
    """Reads the records of an operator with a key and an event time."""

    def __init__(
        self,
        settings: WindowedSettings,
        fields: dict[str, str | None],
        *,
        parses: bool,
        field: str | None = None,
    ) -> None:
        self._key = None if settings.key == "record" else settings.key
        self._event_time = settings.event_time
        self._fields, self._field = fields, field
        self._parses = bool(parses or self._key or self._event_time)

    def whole(self, columns: Sequence[Sequence[Any]]) -> Inputs | None:
        """
        Return the inputs of records, each with its number; None: one needs a closer look.

        All keys, times and values are taken at once, which most records allow.
        """
        topics, partitions, offsets, times, keys, raws, _ = columns
        if self._key is not None or self._event_time is not None or self._fields or not times:
            return None
        if None in keys or min(times) < 0 or max(times) >= END_OF_TIME:
            return None
        values: Sequence[Any] | None = [None] * len(times)
        if self._parses:
            values = None if None in raws else loads_all(raws)
            if values is not None and self._field is not None:
                values = _fields(values, self._field)
        if values is None:
            return None
        return Inputs(keys, times, values, topics, partitions, offsets, raws, range(len(times)))

    def __call__(
        self, records: Iterable[Sequence[Any]], rows: Iterable[Any], failed: list[Failed]
    ) -> Iterator[Input]:
        # Local names: a million rows would each look these up on `self`, a good part of the work.
        keys = None if self._key is None else _Keys(self._key)
        event_time, parses = self._event_time, self._parses
        field_of, every, new = self._fields.get, self._field, tuple.__new__
        for (topic, partition, offset, time, key, raw, _), row in zip(records, rows, strict=False):
            value = None
            if keys is not None:
                key = None  # noqa: PLW2901  # its own key means nothing here
            try:
                if parses and raw is not None:
                    value = loads(raw)
                if keys is not None:
                    key = keys.of(value)  # noqa: PLW2901  # like the record's own
                if key is not None:
                    if event_time is not None or not 0 <= time < END_OF_TIME:
                        time = _written(value, event_time, time)  # noqa: PLW2901  # likewise
                    field = field_of(topic, every)
                    if field is not None and parses:
                        value = _field(value, field)
            except (ValueError, DovecoteError) as error:
                unread = Input(key, time, None, topic, partition, offset, raw, row)
                failed.append(Failed(unread, str(error)))
                continue
            # Calls tuple's own constructor; the named tuple's takes three times as long.
            yield new(Input, (key, time, value, topic, partition, offset, raw, row))


def _whole(
    records: Iterable[Sequence[Any]], rows: Iterable[Any], failed: list[Failed]
) -> Iterator[Input]:
    new = tuple.__new__
    for fields, row in zip(records, rows, strict=False):
        record = new(Record, fields)
        topic, partition, offset, time, key, raw, _ = record
        if not 0 <= time < END_OF_TIME:
            try:
                time = _written(None, None, time)
            except Unreadable as error:
                unread = Input(key, 0, record, topic, partition, offset, raw, row)
                failed.append(Failed(unread, str(error)))
                continue
            record = record._replace(timestamp=time)
        yield new(Input, (key, time, record, topic, partition, offset, raw, row))


def _delayed(
    records: Iterable[Sequence[Any]], rows: Iterable[Any], failed: list[Failed]
) -> Iterator[Input]:
    new = tuple.__new__
    for fields, row in zip(records, rows, strict=False):
        record = new(Record, fields)
        topic, partition, offset, _, key, raw, _ = record
        try:
            envelope.require_readable(record)
            due = envelope.due(record)
        except DovecoteError as error:
            unread = Input(key, 0, record, topic, partition, offset, raw, row)
            failed.append(Failed(unread, str(error)))
            continue
        yield new(Input, (key, due, record, topic, partition, offset, raw, row))


def _fields(values: Iterable[Any], name: str) -> list[Any] | None:
    """Return what `_field` does of each value; None: one of them lacks the field."""
    try:
        return list(map(itemgetter(name), values))
    except (KeyError, TypeError, IndexError):
        return None


def _field(value: Any, name: str) -> Any:  # noqa: ANN401  # JSON
    try:
        return value[name]
    except (KeyError, TypeError, IndexError):
        msg = f'the value has no field "{name}"'
        raise Unreadable(msg) from None


class _Keys:
    """Makes keys from these fields of values; None if one of them is null."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._pick = itemgetter(*names)
        self._known: dict[Any, bytes] = {}
        """
        A cache, since most keys come several times. It has only text, which equals nothing else.
        """

    def of(self, value: Any) -> bytes | None:  # noqa: ANN401  # JSON
        try:
            made = self._known.get(self._pick(value))
        except (KeyError, TypeError, IndexError):  # a field is missing, or has no hash
            made = None
        return self._made(value) if made is None else made

    def _made(self, value: Any) -> bytes | None:  # noqa: ANN401  # JSON
        fields = [_field(value, name) for name in self._names]  # reports the missing field
        if None in fields:
            return None
        if any(field.__class__ is not str for field in fields):
            return to_json(fields)
        # The same bytes for text, in a tenth of the time.
        made = self._known[self._pick(value)] = text_to_json(fields)
        return made


def _written(value: Any, name: str | None, time: int) -> int:  # noqa: ANN401  # JSON
    """Return the event time of a record: the field `name` if it is there, or its timestamp."""
    found = of_record(time)
    if name is not None:
        return _time(value, name, -1 if found is None else found)
    if found is None:
        msg = f"its timestamp, {time}, is not a time since 1970"
        raise Unreadable(msg)
    return found


def _time(value: Any, name: str, otherwise: int) -> int:  # noqa: ANN401  # JSON
    found = value.get(name) if value.__class__ is dict else None
    if found.__class__ is float and found.is_integer():  # 1.76e12
        found = int(found)
    if found.__class__ is int and -_MOST <= found <= _MOST:
        return found
    if found is None:
        return otherwise
    msg = f'the field "{name}" is not a number of milliseconds'
    raise Unreadable(msg)
