"""A JSON Schema as a list of alternatives, each of one kind, with its references resolved."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dovecote.contracts.rules.contract import Schema

KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
_DEEPEST = 50

ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "example", "deprecated", "readOnly"),
        *("writeOnly", "discriminator", "contentMediaType", "x-dovecote"),
        *("$schema", "$id", "$comment", "$defs", "definitions", "$anchor"),
    }
)
"""Keywords that say nothing of which values are valid."""


class CannotJudge(Exception):
    """A schema has a form that the comparison does not know."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One alternative of a schema."""

    kind: str
    """A type of JSON, `any`, or `never`."""
    name: str | None
    """The name of its definition, or its title."""
    schema: Mapping[str, Any]
    """Its keywords, without those that were resolved."""
    definition: str | None = None
    """The reference that led to it, with what is demanded besides."""

    @property
    def values(self) -> list[Any] | None:
        """The only values that are valid, if it lists them."""
        found = self.schema.get("enum")
        return list(found) if isinstance(found, list) else None


def shapes(schema: Schema, root: Mapping[str, Any]) -> list[Shape]:
    """
    Return the alternatives of a schema in their order.

    Raises:
        CannotJudge: a keyword or a reference is not known.
    """
    return [*_shapes(schema, root, (None, None), 0)]


def _shapes(
    schema: Schema, root: Mapping[str, Any], led: tuple[str | None, str | None], depth: int
) -> Iterator[Shape]:
    if depth > _DEEPEST:
        msg = "a reference leads back to itself"
        raise CannotJudge(msg)
    if isinstance(schema, bool):
        yield Shape("any" if schema else "never", None, {})
        return
    given = _direct(schema)
    if "$ref" in given:
        reference = given.pop("$ref")
        rest = _telling(given)
        target, found = _resolved(reference, root)
        if rest:
            # Constraints beside a reference hold as well.
            said = json.dumps(rest, sort_keys=True, default=str)
            given = _merged(target, rest)
            yield from _shapes(given, root, (found, f"{reference} {said}"), depth + 1)
        else:
            yield from _shapes(target, root, (found, reference), depth + 1)
        return
    if "allOf" in given:
        parts = given.pop("allOf")
        for part in parts:
            given = _merged(_flat(part, root), given)
        yield from _shapes(given, root, led, depth + 1)
        return
    for keyword in ("anyOf", "oneOf"):
        if keyword in given:
            parts = given.pop(keyword)
            rest = _telling(given)
            for part in parts:
                merged = _merged(_flat(part, root), rest) if rest else part
                yield from _shapes(merged, root, (None, None), depth + 1)
            return
    yield from _of_kinds(given, led)


def _direct(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with a reference in place of an `allOf` of it alone, as old drafts need."""
    match given:
        case {"allOf": [{"$ref": _, **more}], **rest} if not more and "$ref" not in rest:
            return {**rest, **given["allOf"][0]}
    return dict(given)


def _of_kinds(given: dict[str, Any], led: tuple[str | None, str | None]) -> Iterator[Shape]:
    name = led[0] or given.get("title")
    if "const" in given:
        given["enum"] = [given.pop("const")]
    types = given.pop("type", None)
    if isinstance(types, str):
        types = [types]
    if types is None and "enum" in given:
        types = [*dict.fromkeys(kind_of(each) for each in given["enum"])]
    elif types is None:
        types = _implied(given)
    for kind in types:
        telling = dict(given)
        if "enum" in given:
            values = [each for each in given["enum"] if _fits(kind_of(each), kind)]
            if not values:
                continue
            telling["enum"] = values
        yield Shape(kind, name, telling, led[1])


def _implied(given: Mapping[str, Any]) -> list[str]:
    if not _telling(given):
        return ["any"]
    if "properties" in given:
        return ["object"]
    if "items" in given or "prefixItems" in given:
        return ["array"]
    return ["any"]


def kind_of(value: object) -> str:  # noqa: PLR0911  # one for each kind
    """Return the kind of a value of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _fits(kind: str, wanted: str) -> bool:
    return kind == wanted or (kind == "integer" and wanted == "number")


def _telling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that say which values are valid."""
    return {name: each for name, each in given.items() if name not in ANNOTATIONS}


def _flat(part: Schema, root: Mapping[str, Any]) -> dict[str, Any]:
    for _ in range(_DEEPEST):
        if isinstance(part, bool):
            if part:
                return {}
            break
        if "$ref" not in part:
            return dict(part)
        rest = {name: each for name, each in part.items() if name != "$ref"}
        part = _merged(_resolved(part["$ref"], root)[0], _telling(rest))
    msg = "it is combined in a way that has no simple form"
    raise CannotJudge(msg)


def _merged(one: Schema, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that demands what both demand."""
    if isinstance(one, bool):
        if one:
            return dict(other)
        msg = "it allows nothing"
        raise CannotJudge(msg)
    found = dict(one)
    for name, each in other.items():
        if name == "properties" and name in found:
            if set(found[name]) & set(each):
                msg = "two parts of `allOf` have the same property"
                raise CannotJudge(msg)
            found[name] = {**found[name], **each}
        elif name == "required" and name in found:
            found[name] = [*found[name], *each]
        elif name in found and name not in ANNOTATIONS and found[name] != each:
            msg = f"two parts of a schema say different things of `{name}`"
            raise CannotJudge(msg)
        else:
            found[name] = each
    return found


def _resolved(reference: object, root: Mapping[str, Any]) -> tuple[Schema, str]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        msg = f"the reference {str(reference)[:100]!r} leads out of the schema"
        raise CannotJudge(msg)
    found: Any = root
    words = [word for word in reference[1:].split("/") if word]
    for word in words:
        name = word.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            msg = f"the reference {reference[:100]!r} leads nowhere"
            raise CannotJudge(msg)
        found = found[name]
    if not isinstance(found, bool | Mapping):
        msg = f"the reference {reference[:100]!r} leads to no schema"
        raise CannotJudge(msg)
    return found, words[-1] if words else ""
