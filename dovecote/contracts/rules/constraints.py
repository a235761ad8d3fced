"""Compare the constraints of two schemas of one kind: bounds, lengths, formats, patterns."""

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from dovecote.contracts.rules.change import Change, both, narrower, not_judged, wider
from dovecote.contracts.rules.shape import ANNOTATIONS
from outbox.contracts.formats import CHECKED

_LOWER = (("minLength", "length"), ("minItems", "number of items"), ("minProperties", "size"))
_UPPER = (("maxLength", "length"), ("maxItems", "number of items"), ("maxProperties", "size"))
_NUMBERS = frozenset({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"})
_TEXTS = ("format", "contentEncoding")

LIMITS = "x-limits"
"""The keyword for limits of a class that JSON Schema has no words for, such as a least date."""

_LESS_IS_NARROWER = frozenset({"le", "lt", "max_digits", "decimal_places"})
_MORE_IS_NARROWER = frozenset({"ge", "gt"})
_JUDGED = (
    _NUMBERS
    | frozenset(name for name, _ in (*_LOWER, *_UPPER))
    | frozenset({*_TEXTS, "pattern", "uniqueItems", LIMITS})
)

_Bound = tuple[float, bool]


def constraints(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[frozenset[str], list[Change]]:
    """Return the keywords that are judged here, and what of them has changed."""
    return _JUDGED, [*_changes(path, old, new)]


def admits(schema: Mapping[str, Any], value: Any) -> bool:  # noqa: ANN401  # any value of JSON
    """Return whether a value fits the constraints of a schema; in doubt it does not."""
    given = {name: each for name, each in schema.items() if name not in ANNOTATIONS}
    try:
        return all(_admits(name, each, value) for name, each in given.items())
    except (TypeError, ValueError, ArithmeticError, re.error):
        return False


def _admits(name: str, limit: Any, value: Any) -> bool:  # noqa: ANN401, PLR0911  # one for each
    match name:
        case "minimum":
            return bool(value >= limit)
        case "maximum":
            return bool(value <= limit)
        case "exclusiveMinimum":
            return bool(value > limit)
        case "exclusiveMaximum":
            return bool(value < limit)
        case "multipleOf":
            return Decimal(str(value)) % Decimal(str(limit)) == 0
        case "minLength":
            return bool(len(value) >= limit)
        case "maxLength":
            return bool(len(value) <= limit)
        case "pattern":
            return re.search(limit, value) is not None
        case "format":
            return limit in CHECKED and CHECKED[limit](value)
    return False


def _changes(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    try:
        yield from _bounds(path, old, new)
        for name, what in _LOWER:
            yield from _limit(
                path, f"its least {what}", old.get(name) or 0, new.get(name) or 0, sign=1
            )
        for name, what in _UPPER:
            was, is_ = old.get(name, float("inf")), new.get(name, float("inf"))
            yield from _limit(path, f"its greatest {what}", was, is_, sign=-1)
    except TypeError:
        # Draft 4 has a truth value as `exclusiveMinimum`, for one.
        yield not_judged(path, "a bound is no number")
    yield from _multiple(path, old.get("multipleOf"), new.get("multipleOf"))
    for name in _TEXTS:
        yield from _text(path, name, old.get(name), new.get(name))
    yield from _pattern(path, old.get("pattern"), new.get("pattern"))
    yield from _limits(path, old.get(LIMITS) or {}, new.get(LIMITS) or {})
    if (was := bool(old.get("uniqueItems"))) != (is_ := bool(new.get("uniqueItems"))):
        what = "its items are unique" if is_ else "its items may repeat"
        yield (narrower if is_ and not was else wider)(path, what)


def _bounds(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for sign, plain, exclusive, what in (
        (1, "minimum", "exclusiveMinimum", "its least value"),
        (-1, "maximum", "exclusiveMaximum", "its greatest value"),
    ):
        was, is_ = _bound(old, plain, exclusive, sign), _bound(new, plain, exclusive, sign)
        if was != is_:
            said = f"{what} was {_bound_said(was, sign)}, and is {_bound_said(is_, sign)}"
            yield (narrower if is_ > was else wider)(path, said)


def _bound(schema: Mapping[str, Any], plain: str, exclusive: str, sign: int) -> _Bound:
    """Return a bound of which a greater one is narrower, whichever side it is for."""
    found = [(float("-inf"), False)]
    if plain in schema:
        found.append((schema[plain] * sign, False))
    if exclusive in schema:
        if isinstance(schema[exclusive], bool):
            raise TypeError
        found.append((schema[exclusive] * sign, True))
    return max(found)


def _bound_said(bound: _Bound, sign: int) -> str:
    number, is_exclusive = bound
    if number == float("-inf"):
        return "free"
    return f"{number * sign}{' without itself' if is_exclusive else ''}"


def _limit(path: str, what: str, was: float, is_: float, *, sign: int) -> Iterator[Change]:
    if was == is_:
        return
    said = [("free" if each == float("inf") else str(each)) for each in (was, is_)]
    change = narrower if (is_ - was) * sign > 0 else wider
    yield change(path, f"{what} was {said[0]}, and is {said[1]}")


def _multiple(path: str, was: object, is_: object) -> Iterator[Change]:
    if was == is_:
        return
    said = f"`multipleOf` was {was}, and is {is_}"
    if was is None:
        yield narrower(path, said)
    elif is_ is None:
        yield wider(path, said)
    elif not (isinstance(was, int) and isinstance(is_, int) and was and is_):
        yield not_judged(path, said)
    elif is_ % was == 0:
        yield narrower(path, said)
    elif was % is_ == 0:
        yield wider(path, said)
    else:
        yield both(path, said, "either side may have values that the other refuses")


def _text(path: str, name: str, was: object, is_: object) -> Iterator[Change]:
    if was == is_:
        return
    said = f"`{name}` was {was or 'free'}, and is {is_ or 'free'}"
    if was is None:
        yield narrower(path, said)
    elif is_ is None:
        yield wider(path, said)
    else:
        yield both(path, said, "no reader takes one for the other")


def _pattern(path: str, was: object, is_: object) -> Iterator[Change]:
    if was == is_:
        return
    if was is None:
        yield narrower(path, f"it must match {is_!r}")
    elif is_ is None:
        yield wider(path, f"it need not match {was!r}")
    else:
        yield not_judged(path, f"its pattern was {was!r}, and is {is_!r}")


def _limits(path: str, was: Any, is_: Any) -> Iterator[Change]:  # noqa: ANN401  # any JSON
    if not isinstance(was, dict) or not isinstance(is_, dict):
        if was != is_:
            yield not_judged(path, f"`{LIMITS}` is different")
        return
    for name in sorted({*was, *is_}):
        one, other = was.get(name), is_.get(name)
        if one == other:
            continue
        said = f"its limit `{name}` was {one or 'free'}, and is {other or 'free'}"
        change = _moved(name, one, other)
        yield change(path, said)


def _moved(name: str, was: object, is_: object) -> Callable[[str, str], Change]:
    if was is None or is_ is None:
        return narrower if was is None else wider
    try:
        difference = Decimal(str(is_)) - Decimal(str(was))
    except InvalidOperation:
        return not_judged
    if name in _LESS_IS_NARROWER:
        difference = -difference
    elif name not in _MORE_IS_NARROWER:
        return not_judged
    return narrower if difference > 0 else wider
