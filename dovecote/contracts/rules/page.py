"""A readable page of contracts, in Markdown."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from dovecote.contracts.rules.contract import Contract, Schema, place

_BOUNDS = (
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minLength"),
    *("maxLength", "pattern", "minItems", "maxItems"),
)
_MOST_VALUES = 20


def page(contracts: Iterable[Contract], *, title: str, version: str) -> str:
    """Return a page with a section for each topic, and a table of fields for each type."""
    found = sorted(contracts, key=place)
    lines = [f"# {_text(title)} {_text(version)}", ""]
    for topic, inner in groupby(found, key=lambda each: each.topic):
        lines += [f"## Topic `{topic}`", ""]
        for each in inner:
            lines += _contract(each)
    return "\n".join(lines).rstrip() + "\n"


def _contract(each: Contract) -> Iterator[str]:
    version = "" if each.version is None else f", version {each.version}"
    yield f"### {_text(each.type)}{version}"
    yield ""
    for what, said in (
        ("Key", each.key),
        ("Subject", each.subject),
        ("Source", each.source),
        ("Schema", each.dataschema),
        ("Class", each.of),
    ):
        if said is not None:
            yield f"* {what}: {_code(said)}"
    yield ""
    yield from _fields("", each.schema, each.schema)
    for name, definition in (each.schema.get("$defs") or {}).items():
        if each.schema.get("$ref") == f"#/$defs/{name}":
            continue
        yield from _fields(name, definition, each.schema)


def _fields(name: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[str]:
    if name:
        yield f"#### {_text(name)}"
        yield ""
    whole = schema
    if isinstance(reference := schema.get("$ref"), str):
        whole = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"), {})
    if described := whole.get("description"):
        yield _text(described)
        yield ""
    if "properties" not in whole:
        yield f"It is {_type(whole)}."
        yield ""
        return
    needed = whole.get("required") or []
    yield "| field | type | required | |"
    yield "|---|---|---|---|"
    for field, inner in whole["properties"].items():
        said = "yes" if field in needed else "no"
        yield f"| {_code(field)} | {_type(inner)} | {said} | {_more(inner)} |"
    yield ""


def _type(schema: Schema) -> str:  # noqa: PLR0911  # one for each kind
    """Return the type of a field in words."""
    if isinstance(schema, bool):
        return "anything" if schema else "nothing"
    if isinstance(reference := schema.get("$ref"), str):
        return _text(reference.rpartition("/")[2])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            word = " and " if keyword == "allOf" else " or "
            return word.join(_type(each) for each in schema[keyword])
    if "const" in schema:
        return _code(json.dumps(schema["const"], ensure_ascii=False))
    if "enum" in schema:
        return _values(schema["enum"])
    kinds = schema.get("type", "anything")
    if kinds == "array":
        if "prefixItems" in schema:
            return "list of " + ", ".join(_type(each) for each in schema["prefixItems"])
        return f"list of {_type(schema.get('items', True))}"
    if kinds == "object" and "additionalProperties" in schema and "properties" not in schema:
        return f"object of {_type(schema['additionalProperties'])}"
    said = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    form = schema.get("format") or schema.get("contentEncoding")
    return f"{_text(said)} ({_text(form)})" if form else _text(said)


def _values(values: list[Any]) -> str:
    said = ", ".join(_code(json.dumps(each, ensure_ascii=False)) for each in values[:_MOST_VALUES])
    return f"one of {said}" + (", …" if len(values) > _MOST_VALUES else "")


def _more(schema: Schema) -> str:
    if isinstance(schema, bool):
        return ""
    said = [f"{name} {_code(schema[name])}" for name in _BOUNDS if name in schema]
    if "default" in schema:
        said.append(f"default {_code(json.dumps(schema['default'], ensure_ascii=False))}")
    if described := schema.get("description"):
        said.append(_text(described))
    return "; ".join(said)


def _code(given: object) -> str:
    """Return text as code that can end neither itself nor a cell of a table."""
    text = " ".join(str(given).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`"


def _text(given: object) -> str:
    """Return text that is neither HTML nor the end of a cell."""
    text = " ".join(str(given).split())
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
