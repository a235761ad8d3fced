"""Judge the properties of objects, of which one side may have some that the other side lacks."""

from collections.abc import Iterator, Mapping
from typing import Any

from dovecote.contracts.rules.change import Change, Verdict, narrower, wider
from dovecote.contracts.rules.contract import Schema


def presence(path: str, *, was: bool, is_: bool) -> Iterator[Change]:
    """Yield the change if a property is required, and was not, or the reverse."""
    if is_ and not was:
        yield narrower(path, "it is required", "old records may lack it")
    elif was and not is_:
        yield wider(path, "it is optional", "new records may lack it, and old readers need it")


def added(path: str, old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> Change:
    """Return the change if only the new side has a property."""
    needed = required(new, name)
    backward, forward, reasons = _one_sided(old, new["properties"][name], "old", needed=needed)
    if needed:
        reasons.insert(0, "old records lack it")
    what = "it is added, and required" if needed else "it is added, and optional"
    return Change(path, what, backward, forward, "; ".join(reasons))


def removed(path: str, old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> Change:
    """Return the change if only the old side has a property."""
    needed = required(old, name)
    forward, backward, reasons = _one_sided(new, old["properties"][name], "new", needed=needed)
    if needed:
        reasons.append("old readers need it")
    what = "it is removed, and was required" if needed else "it is removed, and was optional"
    return Change(path, what, backward, forward, "; ".join(reasons))


def _one_sided(
    lacks: Mapping[str, Any], schema: Schema, side: str, *, needed: bool
) -> tuple[Verdict, Verdict, list[str]]:
    """
    Judge a property that one side lacks: for readers that have it, for those that lack it, why.
    """
    has, without = Verdict.BREAKS if needed else Verdict.FINE, Verdict.FINE
    others, reasons = rest(lacks), list[str]()
    if others is False:
        without = Verdict.BREAKS
        reasons.append(f"{side} readers refuse properties that they do not know")
    elif isinstance(others, Mapping) and not same(others, schema):
        without = Verdict.NOT_JUDGED
        reasons.append(f"{side} readers take it for one of the others")
    if not needed and (others is True or without is Verdict.NOT_JUDGED):
        has = Verdict.NOT_JUDGED
        reasons.append(f"{side} records may have it among the others, in another form")
    return has, without, reasons


def rest(schema: Mapping[str, Any]) -> Schema | None:
    """
    Return what other properties have to be: anything, nothing, or what fits a schema.

    None: a class is known whose writers write none, and whose readers ignore them.
    """
    if (given := schema.get("additionalProperties")) is not None:
        return True if given == {} else given
    return None if "properties" in schema else True


def required(schema: Mapping[str, Any], name: str) -> bool:
    """Return whether a reader needs a property: none needs one that is computed."""
    computed = (schema.get("properties") or {}).get(name)
    is_computed = isinstance(computed, Mapping) and computed.get("readOnly") is True
    return name in names(schema) and not is_computed


def names(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the properties that are required."""
    return schema.get("required") or []


def same(one: object, other: object) -> bool:
    """Return whether two parts of schemas are equal, titles and descriptions aside."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = {*one, *other} - {"title", "description"}
        return all(
            name in one and name in other and same(one[name], other[name]) for name in names
        )
    return type(one) is type(other) and one == other
