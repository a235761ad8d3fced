"""Compare two JSON Schemas: each difference, with what it does to readers in each direction."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dovecote.contracts.rules.change import (
    Change,
    Verdict,
    both,
    fine,
    narrower,
    not_judged,
    wider,
)
from dovecote.contracts.rules.constraints import admits, constraints
from dovecote.contracts.rules.contract import Schema
from dovecote.contracts.rules.properties import (
    added,
    names,
    presence,
    removed,
    required,
    rest,
    same,
)
from dovecote.contracts.rules.shape import ANNOTATIONS, CannotJudge, Shape, shapes

ROOT = "value"
_DEEPEST = 60
_MOST_SAID = 200

_NESTED = frozenset(
    {
        *("properties", "required", "additionalProperties", "propertyNames"),
        *("items", "prefixItems"),
    }
)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """
    Return the changes from an old schema to a new one, in the order of the old one's fields.

    Writers are taken to write the properties that their schema names, and readers to ignore all
    others unless theirs says `additionalProperties: false`. A keyword that is not known, or a
    form that has no simple meaning, is a change that is not judged.
    """
    return [*_Comparison(old, new).schemas(ROOT, old, new)]


class _Comparison:
    """A walk through two schemas; pairs of definitions that it has met once end it."""

    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old, self._new = old, new
        self._met: set[tuple[str, str]] = set()
        # It keeps both, so that no later one is at the same place in memory.
        self._walked: dict[tuple[int, int], tuple[Schema, Schema]] = {}

    def schemas(self, path: str, old: Schema, new: Schema) -> Iterator[Change]:
        if not isinstance(old, bool) and not isinstance(new, bool):
            # A reference beside other keywords may lead back here without a definition's name.
            if (pair := (id(old), id(new))) in self._walked:
                return
            self._walked[pair] = old, new
        if path.count(".") + path.count("[") > _DEEPEST:
            yield not_judged(path[:_MOST_SAID], "it is nested too deeply to be compared")
            return
        try:
            olds, news = shapes(old, self._old), shapes(new, self._new)
        except CannotJudge as error:
            if not same(old, new) or self._old != self._new:
                yield not_judged(path, f"the schema is compared with difficulty: {error}")
            return
        yield from self._alternatives(path, olds, news)
        yield from _default(path, old, new)

    def _alternatives(self, path: str, olds: list[Shape], news: list[Shape]) -> Iterator[Change]:
        yield from _nullability(path, olds, news)
        olds = [each for each in olds if each.kind not in {"null", "never"}]
        news = [each for each in news if each.kind not in {"null", "never"}]
        if any(each.kind == "any" for each in (*olds, *news)):
            yield from self._anything(path, olds, news)
            return
        pairs, gone, come = _paired(olds, news)
        for old, new in pairs:
            yield from self._pair(path, old, new)
        gone, come = _without_whole(gone, news), _without_whole(come, olds)
        if len(gone) == len(come) == 1:
            yield _type_changed(path, gone[0], come[0])
            return
        for each in gone:
            yield narrower(path, f"it is {_article(_said(each))} no more")
        for each in come:
            yield wider(path, f"it may be {_article(_said(each))}, too")

    def _anything(self, path: str, olds: list[Shape], news: list[Shape]) -> Iterator[Change]:
        was, is_ = ([each.kind for each in side] == ["any"] for side in (olds, news))
        if was and is_:
            yield from _keywords(path, olds[0], news[0], frozenset())
        elif was:
            yield narrower(path, f"it was anything, and is {_list(news)}")
        elif is_:
            yield wider(path, f"it was {_list(olds)}, and is anything")
        else:
            yield not_judged(path, "anything is one of its alternatives")

    def _pair(self, path: str, old: Shape, new: Shape) -> Iterator[Change]:
        if old.definition and new.definition:
            if (pair := (old.definition, new.definition)) in self._met:
                return
            self._met.add(pair)
        if old.kind != new.kind:
            yield _number_changed(path, old, new)
        yield from _enumeration(path, old, new)
        known = frozenset({"enum"})
        if old.kind == "object":
            yield from self._objects(path, old.schema, new.schema)
            known |= _NESTED
        elif old.kind == "array":
            yield from self._arrays(path, old.schema, new.schema)
            known |= _NESTED
        if old.values is None and new.values is None:
            yield from _keywords(path, old, new, known)

    def _objects(
        self, path: str, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> Iterator[Change]:
        olds, news = old.get("properties") or {}, new.get("properties") or {}
        gone = [name for name in olds if name not in news]
        come = [name for name in news if name not in olds]
        renamed = self._renamed(path, old, new, gone=gone, come=come)
        for name in olds:
            if name in news:
                inner = f"{path}.{name}"
                yield from presence(inner, was=required(old, name), is_=required(new, name))
                yield from self.schemas(inner, olds[name], news[name])
            elif name in gone:
                yield renamed.get(name) or removed(f"{path}.{name}", old, new, name)
        found = {each for each in renamed if each in come}
        for name in come:
            if name not in found:
                yield added(f"{path}.{name}", old, new, name)
        yield from self._others(path, old, new)

    def _renamed(
        self,
        path: str,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        *,
        gone: list[str],
        come: list[str],
    ) -> dict[str, Change]:
        """Return one change in place of two where one property has come for another one."""
        if len(gone) != 1 or len(come) != 1:
            return {}
        (was,), (is_,) = gone, come
        one, other = old["properties"][was], new["properties"][is_]
        if not same(one, other) or (was in names(old)) != (is_ in names(new)):
            return {}
        less = removed(f"{path}.{was}", old, new, was)
        more = added(f"{path}.{is_}", old, new, is_)
        change = Change(
            f"{path}.{was}",
            f"it seems to be renamed to {is_}",
            _worse(less.backward, more.backward),
            _worse(less.forward, more.forward),
            "; ".join(dict.fromkeys(each.why for each in (less, more) if each.why))
            or "readers see the default in place of what the other name has",
        )
        return {was: change, is_: change}

    def _others(
        self, path: str, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> Iterator[Change]:
        was, is_ = rest(old), rest(new)
        if isinstance(was, Mapping) and isinstance(is_, Mapping):
            yield from self.schemas(f"{path}.*", was, is_)
        elif is_ is False and was is not False:
            yield narrower(path, "other properties are refused", "old records may have some")
        elif was is False and is_ is None:
            yield fine(path, "other properties are ignored")
        elif was is False and is_ is not False:
            what = "other properties are allowed"
            yield wider(path, what, "old readers refuse properties that they do not know")
        elif was is True and isinstance(is_, Mapping):
            yield narrower(path, "other properties must fit a schema")
        elif isinstance(was, Mapping) and is_ is True:
            yield wider(path, "other properties may be anything")
        forms = old.get("propertyNames"), new.get("propertyNames")
        if not same(*forms):
            if None in forms:
                change = narrower if forms[0] is None else wider
                yield change(path, "the names of its properties have another form")
            else:
                yield not_judged(path, "`propertyNames` is different")

    def _arrays(
        self, path: str, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> Iterator[Change]:
        olds, news = old.get("prefixItems") or [], new.get("prefixItems") or []
        was, is_ = _rest_of_list(old), _rest_of_list(new)
        for at in range(max(len(olds), len(news))):
            one = olds[at] if at < len(olds) else was
            other = news[at] if at < len(news) else is_
            yield from self._items(f"{path}[{at}]", one, other)
        yield from self._items(f"{path}[]", was, is_)

    def _items(self, path: str, old: Schema, new: Schema) -> Iterator[Change]:
        if old is False and new is False:
            return
        if old is False:
            yield wider(path, "there may be such an item")
        elif new is False:
            yield narrower(path, "there is no such item any more")
        else:
            yield from self.schemas(path, old, new)


def _rest_of_list(schema: Mapping[str, Any]) -> Schema:
    """Return what the items have to be that have no place of their own; False: there are none."""
    most, places = schema.get("maxItems"), schema.get("prefixItems") or []
    if isinstance(most, int) and most <= len(places):
        return False
    found: Schema = schema.get("items", True)
    return found


def _paired(
    olds: list[Shape], news: list[Shape]
) -> tuple[list[tuple[Shape, Shape]], list[Shape], list[Shape]]:
    """Return the alternatives that belong together, the old ones that are left, and the new."""
    pairs, gone, come = [], [], [*news]
    for old in olds:
        alike = [each for each in come if each.kind == old.kind]
        several = max(_count(olds, old.kind), _count(news, old.kind)) > 1
        if several:
            # One class among several is another one if its name is.
            alike = [each for each in alike if each.name == old.name]
        if alike:
            pairs.append((old, alike[0]))
            come.remove(alike[0])
        else:
            gone.append(old)
    # A whole number is a number, too.
    for one, other in (("integer", "number"), ("number", "integer")):
        left = [each for each in gone if each.kind == one]
        right = [each for each in come if each.kind == other]
        if len(left) == len(right) == 1:
            pairs.append((left[0], right[0]))
            gone.remove(left[0])
            come.remove(right[0])
    return pairs, gone, come


def _without_whole(given: list[Shape], others: list[Shape]) -> list[Shape]:
    """Leave out whole numbers if the other side has all numbers."""
    if any(each.kind == "number" and not _limiting(each) for each in others):
        return [each for each in given if each.kind != "integer"]
    return given


def _limiting(shape: Shape) -> bool:
    return bool({*shape.schema} - ANNOTATIONS)


def _count(given: list[Shape], kind: str) -> int:
    return sum(each.kind == kind for each in given)


def _nullability(path: str, olds: list[Shape], news: list[Shape]) -> Iterator[Change]:
    was, is_ = (any(each.kind in {"null", "any"} for each in side) for side in (olds, news))
    if any(each.kind == "any" for each in (*olds, *news)) or was == is_:
        return
    if is_:
        yield wider(path, "it may be null", "old readers refuse null")
    else:
        yield narrower(path, "it is never null", "old records may have null")


def _type_changed(path: str, old: Shape, new: Shape) -> Change:
    what = f"it was {_article(_said(old))}, and is {_article(_said(new))}"
    return both(path, what, "no reader takes one for the other")


def _number_changed(path: str, old: Shape, new: Shape) -> Change:
    what = f"it was {_article(_said(old))}, and is {_article(_said(new))}"
    if new.kind == "number":
        return wider(path, what, "old readers of a whole number refuse a fraction")
    return narrower(path, what, "old records may have fractions")


def _enumeration(path: str, old: Shape, new: Shape) -> Iterator[Change]:
    was, is_ = old.values, new.values
    if was is None and is_ is None:
        return
    if was is None:
        change = narrower(path, f"it must be one of {_some(is_ or [])}")
        if refused := [each for each in is_ or [] if not admits(old.schema, each)]:
            why = f"{change.why}; old readers refuse {_some(refused)}"
            change = replace(change, forward=Verdict.BREAKS, why=why)
        yield change
        return
    if is_ is None:
        change = wider(path, f"it need be none of {_some(was)}")
        if refused := [each for each in was if not admits(new.schema, each)]:
            why = f"{change.why}; new readers refuse {_some(refused)}"
            change = replace(change, backward=Verdict.BREAKS, why=why)
        yield change
        return
    if gone := [each for each in was if not _within(each, is_)]:
        yield narrower(path, f"it is never {_some(gone)}", "old records may have it")
    if come := [each for each in is_ if not _within(each, was)]:
        yield wider(path, f"it may be {_some(come)}, too", "old readers do not know it")


def _within(value: object, values: list[Any]) -> bool:
    return any(type(each) is type(value) and each == value for each in values)


def _keywords(path: str, old: Shape, new: Shape, known: frozenset[str]) -> Iterator[Change]:
    judged, found = constraints(path, old.schema, new.schema)
    yield from found
    for name in sorted({*old.schema, *new.schema} - ANNOTATIONS - known - judged):
        if not same(old.schema.get(name), new.schema.get(name)):
            yield not_judged(path, f"`{name}` is different")


def _default(path: str, old: Schema, new: Schema) -> Iterator[Change]:
    if isinstance(old, bool) or isinstance(new, bool) or "default" not in {**old, **new}:
        return
    was, is_ = old.get("default", ...), new.get("default", ...)
    if was is not ... and is_ is not ... and not same(was, is_):
        yield fine(path, f"its default was {_some([was])}, and is {_some([is_])}")


def _worse(one: Verdict, other: Verdict) -> Verdict:
    ranked = [Verdict.FINE, Verdict.NOT_JUDGED, Verdict.BREAKS]
    return max(one, other, key=ranked.index)


def _said(shape: Shape) -> str:
    if shape.kind == "object" and shape.name:
        return f"object {shape.name}"
    return shape.kind


def _article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


def _list(given: list[Shape]) -> str:
    return " or ".join(_article(_said(each)) for each in given) or "null"


def _some(values: list[Any]) -> str:
    said = ", ".join(repr(each)[:60] for each in values[:5])
    return said + (", …" if len(values) > 5 else "")  # noqa: PLR2004  # as above
