"""The records that say what became of sessions: many at once, by their columns."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from typing import Any, TypeAlias

import msgspec
from pydantic_core import to_json as fast_json

from spark_jobs.operators.reading import OperatorSettings, keys_of
from spark_jobs.operators.settings import WindowedSettings
from spark_jobs.operators.step import Closed, Session

Told: TypeAlias = tuple[str, bytes, bytes, bytes, int, tuple[str, int, int]]
"""A record to write: topic, key, value, id, time, and the place that it comes from."""

Columns: TypeAlias = tuple[Any, ...]
"""Records to write by their fields; one text stands for a column of equal ones."""

NOWHERE = ("", -1, -1)
"""The place of a record that comes from several."""

# A copy takes half as long as a new one with its options.
_EMPTY = blake2b(digest_size=12)
# Both encoders write these in the same way. They write large floats differently.
_PLAIN = frozenset({str, int, bool, type(None)})
_encode_lines = msgspec.json.Encoder().encode_lines


class _Value(msgspec.Struct, gc=False):
    """The value of a record; its fields are in the order in which they are written."""

    kind: str
    key: Any
    start: int
    end: int
    value: Any
    revision: int


def of_sessions(
    sessions: Sequence[Session], settings: OperatorSettings, topic: str, source: bytes
) -> Iterable[Told]:
    """Return the record of each session, in their order."""
    ids = [
        source + digest(key, b"%b/%d/%d/%d" % (kind.encode(), start, end, revision))
        for kind, key, start, end, _, revision in sessions
    ]
    columns = _, keys, _, ends, _, _ = tuple(zip(*sessions, strict=True))
    values = _values(columns, settings)
    return zip(repeat(topic), keys, values, ids, _times(ends), repeat(NOWHERE), strict=False)


def of_closed(
    closed: Closed, settings: OperatorSettings, topic: str, source: bytes
) -> Iterable[Told]:
    """Return what `of_sessions` does for the sessions in `closed`."""
    topic, *columns, _, _, _ = columns_of_closed(closed, settings, topic, source)
    return zip(repeat(topic), *columns, repeat(NOWHERE), strict=False)


def columns_of_closed(
    closed: Closed, settings: OperatorSettings, topic: str, source: bytes
) -> Columns:
    """Return the same by columns: the fields of `Told`, with three in place of the last."""
    count = len(closed.keys)
    values = _values((("result",) * count, *closed), settings)
    ids, times = _ids_of_closed(closed, source), _times(closed.ends)
    place, *numbers = NOWHERE
    return topic, closed.keys, values, ids, times, place, *([each] * count for each in numbers)


def _times(ends: Sequence[int]) -> Sequence[int]:
    return ends if min(ends) >= 0 else [max(each, 0) for each in ends]


def _ids_of_closed(closed: Closed, source: bytes) -> list[bytes]:
    """Return the ids as they are for one session; without a call for each part of them."""
    new, found = _EMPTY.copy, []
    for key, start, end, _, revision in zip(*closed, strict=True):
        made = new()
        made.update(b"%b\0result/%d/%d/%d" % (key, start, end, revision))
        found.append(source + made.hexdigest().encode())
    return found


def digest(key: bytes, said: bytes) -> bytes:
    """Return the part of a result's id that tells it from others of its operator."""
    found = _EMPTY.copy()
    found.update(b"%b\0%b" % (key, said))
    return found.hexdigest().encode()


def _values(sessions: Sequence[Sequence[Any]], settings: OperatorSettings) -> list[bytes]:
    """Return the value of each record, from the columns of the sessions."""
    kinds, keys, starts, ends, aggregates, revisions = sessions
    shown: list[Any] = [""] * len(keys)
    if isinstance(settings, WindowedSettings):
        shown = keys_of(keys, settings)
    columns = kinds, shown, starts, ends, aggregates, revisions
    if _is_plain(aggregates) and _is_plain(shown):
        try:
            lines = _encode_lines(map(_Value, *columns))
        except ValueError:
            pass  # the other encoder says why
        else:
            return lines.split(b"\n")[:-1]  # JSON has none but those between the values
    names = _Value.__struct_fields__
    return [fast_json(dict(zip(names, each, strict=True))) for each in zip(*columns, strict=True)]


def _is_plain(values: Sequence[Any]) -> bool:
    """Return whether these are texts, integers and the like, or lists of them."""
    lists = [each for each in values if isinstance(each, list)]
    if len(lists) < len(values):
        others = (each for each in values if not isinstance(each, list))
        if not _PLAIN.issuperset(map(type, others)):
            return False
    return _PLAIN.issuperset(map(type, chain.from_iterable(lists)))
