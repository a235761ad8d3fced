"""
Aggregate the values of a session, with a named aggregate or the user's own.

An aggregate has three functions with the arguments of Kafka Streams: `initializer()`,
`aggregator(key, value, aggregate)` and `merger(key, one, other)`.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic_core import to_json as fast_json

from dedup.replay.trace import to_json
from dedup.rules.json_text import loads
from dedup.rules.policies.expressions import load_object
from outbox.errors import BadSettings
from spark_jobs.operators.step import NEVER

ODD: Any = object()
"""In place of the value of a session: its records need a closer look, one after the other."""

Fold: TypeAlias = Callable[
    [Sequence[Any], Sequence[int], Sequence[int], Mapping[int, Any]], list[Any]
]
"""
Returns the value of each session, whose records are the values between its begin and its end.

The last argument has the values of sessions that go on, by their places. None of them is changed.
"""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The functions that turn the values of a session into one."""

    initializer: Callable[[], Any]
    aggregator: Callable[[str | list[Any], Any, Any], Any]
    merger: Callable[[str | list[Any], Any, Any], Any]

    begin: Callable[[Any], Any] | None = None
    """Returns the aggregate of one value alone; None: `aggregator` does it."""

    is_neutral: bool = False
    """Merging with the initial aggregate changes nothing."""

    reads_value: bool = True

    snapshot: Callable[[Any], Any] = copy.deepcopy
    """Makes a copy that later records cannot change."""

    fold: Fold | None = None
    """Aggregates all records of sessions at once; None: `aggregator` does it."""


_NOTHING = object()


class TooLarge(ValueError):
    """The value of a session would outgrow its limit."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"the session's value would have more than {most} bytes: raise `max_value_bytes`, or "
            "aggregate to less"
        )


# The most bytes that a number below this one takes in a list with its comma, and a character.
_SMALL, _SMALL_BYTES = 10**17, 19
_CHARACTER = 6
_BRACKETS = 2


class _Sized(list[Any]):
    """A list that knows how many bytes of JSON it takes at most, or exactly."""

    __slots__ = ("is_exact", "size")

    size: int
    is_exact: bool


def _sized(found: list[Any] = []) -> _Sized:  # noqa: B006  # it is never changed
    sized = _Sized(found)
    sized.size, sized.is_exact = len(fast_json(found)) if found else _BRACKETS, False
    return sized


def load(text: str, most: int = NEVER) -> Aggregate:
    """
    Return the aggregate named by `text`, whose values have no more than `most` bytes of JSON.

    Raises:
        BadSettings: there is no such aggregate.
    """
    if text == "list":
        return replace(
            NAMED[text],
            initializer=_sized,
            aggregator=partial(_appended, most),
            begin=partial(_begun, most),
            fold=partial(_listed, most=most),
        )
    if text in NAMED:
        return NAMED[text]
    if ":" not in text:
        msg = f"aggregate {text!r} is none of {', '.join(NAMED)}, nor of the form module:object"
        raise BadSettings(msg)
    found = load_object(text, duty="aggregate")
    functions = [getattr(found, name, None) for name in ("initializer", "aggregator", "merger")]
    if not all(callable(function) for function in functions):
        msg = f"aggregate {text!r} must have the functions initializer, aggregator and merger"
        raise BadSettings(msg)
    initializer, aggregator, merger = functions

    def checked(key: str | list[Any], value: Any, aggregate: Any) -> Any:  # noqa: ANN401  # JSON
        after = to_json(aggregator(key, value, aggregate))  # type: ignore[misc]  # it is callable
        if len(after) > most:
            raise TooLarge(most)
        # As another worker will read it: a tuple is a list then, and the number of a key a text.
        # An unusable value is this record's failure here, and would later be the whole job's.
        return loads(after)

    def merged(key: str | list[Any], one: Any, other: Any) -> Any:  # noqa: ANN401  # JSON
        # The session stays as it is if the record fails after all.
        return merger(key, one, copy.deepcopy(other))  # type: ignore[misc]  # it is callable

    return Aggregate(initializer, checked, merged)  # type: ignore[arg-type]  # it is callable


def folding(functions: Aggregate) -> Fold:
    """Return the function that aggregates the records of sessions with a neutral aggregate."""
    if functions.fold is not None:
        return functions.fold

    def fold(
        values: Sequence[Any],
        begins: Sequence[int],
        ends: Sequence[int],
        before: Mapping[int, Any],
    ) -> list[Any]:
        aggregator, made = functions.aggregator, []
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            found = before[number] if number in before else functions.initializer()
            try:
                for each in values[begin:end]:
                    found = aggregator("", each, found)
            except Exception:  # noqa: BLE001  # it raises again where it is reported
                found = ODD
            made.append(found)
        return made

    return fold


def _listed(
    values: Sequence[Any],
    begins: Sequence[int],
    ends: Sequence[int],
    before: Mapping[int, Any],
    *,
    most: int,
) -> list[Any]:
    """Return the list of each session, or `ODD` if only a closer look shows whether it fits."""
    if set(map(type, values)) == {int} and min(values) > -_SMALL and max(values) < _SMALL:
        sizes: Sequence[int] = range(0, _SMALL_BYTES * (len(values) + 1), _SMALL_BYTES)
    else:
        sizes = [0, *accumulate(map(_bytes_at_most, values))]
    made = list(map(values.__getitem__, map(slice, begins, ends)))
    if sizes[-1] + _BRACKETS > most:
        made = [
            each if sizes[end] - sizes[begin] + _BRACKETS <= most else ODD
            for each, begin, end in zip(made, begins, ends, strict=True)
        ]
    for number, value in before.items():
        old = value if isinstance(value, _Sized) else _sized(value)
        more = sizes[ends[number]] - sizes[begins[number]]
        if old.is_exact or old.size + more > most:
            made[number] = ODD
            continue
        found = _Sized(old)
        found += made[number]
        found.size, found.is_exact = old.size + more, False
        made[number] = found
    return made


def _identity(value: Any) -> Any:  # noqa: ANN401  # a value that cannot change
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{to_json(value).decode()[:100]} is not a number"
        raise TypeError(msg)
    return value


def _sum(total: float, value: float) -> float:
    found = total + value
    if not math.isfinite(found):
        msg = "the sum is too large a number"
        raise OverflowError(msg)
    return found


def _append(_: object, value: object, found: list[object]) -> list[object]:
    found.append(value)
    return found


def _appended(most: int, _: object, value: object, found: list[object]) -> list[object]:
    # A list from the store, or a merged one, does not know.
    sized = found if isinstance(found, _Sized) else _sized(found)
    if sized.is_exact:
        size = sized.size + len(fast_json(value)) + 1
    else:
        # Not a call for the usual value.
        is_small = value.__class__ is int and -_SMALL < value < _SMALL
        size = sized.size + (_SMALL_BYTES if is_small else _bytes_at_most(value))
        if size > most:
            sized.size, sized.is_exact = len(fast_json(sized)), True
            size = sized.size + len(fast_json(value)) + 1
    if size > most:
        raise TooLarge(most)
    sized.append(value)
    sized.size = size
    return sized


def _begun(most: int, value: Any) -> list[object]:  # noqa: ANN401  # JSON
    if value.__class__ is int and -_SMALL < value < _SMALL and most >= _SMALL_BYTES + _BRACKETS:
        sized = _Sized((value,))
        sized.size, sized.is_exact = _SMALL_BYTES + _BRACKETS, False
        return sized
    return _appended(most, "", value, _sized())


def _bytes_at_most(value: Any) -> int:  # noqa: ANN401  # JSON
    """Return how many bytes `value` takes in a list with its comma, or a few more."""
    kind = value.__class__
    if kind is int and -_SMALL < value < _SMALL:
        return _SMALL_BYTES
    if kind is str:
        return _CHARACTER * len(value) + 3
    return len(fast_json(value)) + 1


def _comparing(
    choose: Callable[[Any, Any], Any], accept: Callable[[Any], Any] = _identity
) -> Aggregate:
    def either(_: object, value: Any, found: Any) -> Any:  # noqa: ANN401  # JSON
        accepted = accept(value)
        return accepted if found is _NOTHING else choose(found, accepted)

    def merged(_: object, one: Any, other: Any) -> Any:  # noqa: ANN401  # JSON
        return other if one is _NOTHING else choose(one, other)

    return Aggregate(lambda: _NOTHING, either, merged, is_neutral=True)


def _comparable(value: Any) -> Any:  # noqa: ANN401  # JSON
    return value if isinstance(value, str) else _number(value)


NAMED: Mapping[str, Aggregate] = MappingProxyType(
    {
        "count": Aggregate(
            lambda: 0,
            lambda _, _value, found: found + 1,
            lambda _, one, other: one + other,
            is_neutral=True,
            reads_value=False,
            snapshot=_identity,
        ),
        "sum": Aggregate(
            lambda: 0,
            lambda _, value, found: _sum(found, _number(value)),
            lambda _, one, other: _sum(one, other),
            is_neutral=True,
            snapshot=_identity,
        ),
        "list": Aggregate(
            list, _append, lambda _, one, other: one + other, is_neutral=True, snapshot=list
        ),
        "first": _comparing(lambda one, _: one),
        "last": _comparing(lambda _, other: other),
        "min": _comparing(min, _comparable),
        "max": _comparing(max, _comparable),
    }
)
"""The aggregates that need no code."""
