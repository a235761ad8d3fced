"""Compare two JSON Schemas: each difference, with what it does to readers in each direction."""

from collections.abc import Iterator, Mapping
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
from dovecote.contracts.rules.constraints import constraints
from dovecote.contracts.rules.contract import Schema
from dovecote.contracts.rules.shape import ANNOTATIONS, CannotJudge, Shape, shapes

ROOT = "value"
_DEEPEST = 60
_MOST_SAID = 200

_NESTED = frozenset({"properties", "required", "additionalProperties", "items", "prefixItems"})


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

    def schemas(self, path: str, old: Schema, new: Schema) -> Iterator[Change]:
        if path.count(".") + path.count("[") > _DEEPEST:
            yield not_judged(path[:_MOST_SAID], "it is nested too deeply to be compared")
            return
        try:
            olds, news = shapes(old, self._old), shapes(new, self._new)
        except CannotJudge as error:
            if not _same(old, new) or self._old != self._new:
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
                yield from _presence(inner, was=_required(old, name), is_=_required(new, name))
                yield from self.schemas(inner, olds[name], news[name])
            elif name in gone:
                yield renamed.get(name) or _removed(f"{path}.{name}", old, new, name)
        found = {each for each in renamed if each in come}
        for name in come:
            if name not in found:
                yield _added(f"{path}.{name}", old, new, name)
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
        if not _same(one, other) or (was in _names(old)) != (is_ in _names(new)):
            return {}
        removed = _removed(f"{path}.{was}", old, new, was)
        added = _added(f"{path}.{is_}", old, new, is_)
        change = Change(
            f"{path}.{was}",
            f"it seems to be renamed to {is_}",
            _worse(removed.backward, added.backward),
            _worse(removed.forward, added.forward),
            "; ".join(dict.fromkeys(each.why for each in (removed, added) if each.why))
            or "readers see the default in place of what the other name has",
        )
        return {was: change, is_: change}

    def _others(
        self, path: str, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> Iterator[Change]:
        was, is_ = (each.get("additionalProperties", True) for each in (old, new))
        if is_ is False or was is False:
            if was is not False:
                yield narrower(path, "other properties are refused", "old records may have some")
            elif is_ is not False:
                yield fine(path, "other properties are ignored")
        elif _open(was) and _open(is_):
            return
        elif _open(was):
            yield narrower(path, "other properties must fit a schema")
        elif _open(is_):
            yield wider(path, "other properties may be anything")
        else:
            yield from self.schemas(f"{path}.*", was, is_)

    def _arrays(
        self, path: str, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> Iterator[Change]:
        olds, news = old.get("prefixItems") or [], new.get("prefixItems") or []
        if len(olds) != len(news):
            what = f"it has {len(news)} places with a schema of their own, and had {len(olds)}"
            yield both(path, what, "readers expect the other number")
        for at, (one, other) in enumerate(zip(olds, news, strict=False)):
            yield from self.schemas(f"{path}[{at}]", one, other)
        was, is_ = (each.get("items", True) for each in (old, new))
        if False in (was, is_) and was is not is_:
            yield (narrower if is_ is False else wider)(path, "the rest of the list has changed")
        elif not (was is False and is_ is False):
            yield from self.schemas(f"{path}[]", was, is_)


def _paired(
    olds: list[Shape], news: list[Shape]
) -> tuple[list[tuple[Shape, Shape]], list[Shape], list[Shape]]:
    """Return the alternatives that belong together, the old ones that are left, and the new."""
    pairs, gone, come = [], [], [*news]
    for old in olds:
        same = [each for each in come if each.kind == old.kind]
        several = max(_count(olds, old.kind), _count(news, old.kind)) > 1
        if several:
            # One class among several is another one if its name is.
            same = [each for each in same if each.name == old.name]
        if same:
            pairs.append((old, same[0]))
            come.remove(same[0])
        else:
            gone.append(old)
    return pairs, gone, come


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
    match old.kind, new.kind:
        case "integer", "number" if new.values is None:
            return wider(path, what, "old readers of a whole number refuse a fraction")
        case "number", "integer" if old.values is None:
            return narrower(path, what, "old records may have fractions")
    return both(path, what, "no reader takes one for the other")


def _enumeration(path: str, old: Shape, new: Shape) -> Iterator[Change]:
    was, is_ = old.values, new.values
    if was is None and is_ is None:
        return
    if was is None:
        yield narrower(path, f"it must be one of {_some(is_ or [])}")
        return
    if is_ is None:
        yield wider(path, f"it need be none of {_some(was)}")
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
        if not _same(old.schema.get(name), new.schema.get(name)):
            yield not_judged(path, f"`{name}` is different")


def _presence(path: str, *, was: bool, is_: bool) -> Iterator[Change]:
    if is_ and not was:
        yield narrower(path, "it is required", "old records may lack it")
    elif was and not is_:
        yield wider(path, "it is optional", "new records may lack it, and old readers need it")


def _added(path: str, old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> Change:
    needed, refused = _required(new, name), old.get("additionalProperties", True)
    forward, reasons = Verdict.FINE, []
    if needed:
        reasons.append("old records lack it")
    if refused is False:
        forward = Verdict.BREAKS
        reasons.append("old readers refuse properties that they do not know")
    elif not _open(refused):
        forward = Verdict.NOT_JUDGED
        reasons.append("old readers take it for one of the others")
    backward = Verdict.BREAKS if needed else Verdict.FINE
    what = "it is added, and required" if needed else "it is added, and optional"
    return Change(path, what, backward, forward, "; ".join(reasons))


def _removed(path: str, old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> Change:
    needed, refused = _required(old, name), new.get("additionalProperties", True)
    backward, reasons = Verdict.FINE, []
    if refused is False:
        backward = Verdict.BREAKS
        reasons.append("new readers refuse properties that they do not know")
    elif not _open(refused):
        backward = Verdict.NOT_JUDGED
        reasons.append("new readers take it for one of the others")
    if needed:
        reasons.append("old readers need it")
    forward = Verdict.BREAKS if needed else Verdict.FINE
    what = "it is removed, and was required" if needed else "it is removed, and was optional"
    return Change(path, what, backward, forward, "; ".join(reasons))


def _required(schema: Mapping[str, Any], name: str) -> bool:
    """Return whether a reader needs a property: none needs one that is computed."""
    computed = (schema.get("properties") or {}).get(name)
    is_computed = isinstance(computed, Mapping) and computed.get("readOnly") is True
    return name in _names(schema) and not is_computed


def _names(schema: Mapping[str, Any]) -> list[str]:
    return schema.get("required") or []


def _default(path: str, old: Schema, new: Schema) -> Iterator[Change]:
    if isinstance(old, bool) or isinstance(new, bool) or "default" not in {**old, **new}:
        return
    was, is_ = old.get("default", ...), new.get("default", ...)
    if was is not ... and is_ is not ... and not _same(was, is_):
        yield fine(path, f"its default was {_some([was])}, and is {_some([is_])}")


def _open(given: object) -> bool:
    return given is True or given == {}


def _worse(one: Verdict, other: Verdict) -> Verdict:
    ranked = [Verdict.FINE, Verdict.NOT_JUDGED, Verdict.BREAKS]
    return max(one, other, key=ranked.index)


def _same(one: object, other: object) -> bool:
    """Return whether two parts of schemas are equal, titles and descriptions aside."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = {*one, *other} - {"title", "description"}
        return all(
            name in one and name in other and _same(one[name], other[name]) for name in names
        )
    return type(one) is type(other) and one == other


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
