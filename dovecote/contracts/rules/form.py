"""Find the place where a document has not the form of a JSON Schema."""

from typing import Any

_SCHEMA = frozenset({"items", "additionalProperties", "propertyNames"})
_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "$defs", "definitions"})
_DEEPEST = 200


def misplaced(schema: object) -> str | None:
    """Return the path of a part that is none of what JSON Schema 2020-12 has there, if any is."""
    waiting: list[tuple[str, object, int]] = [("schema", schema, 0)]
    while waiting:
        path, each, depth = waiting.pop()
        if isinstance(each, bool):
            continue
        if not isinstance(each, dict) or depth > _DEEPEST:
            return path
        for name, value in each.items():
            inner = f"{path}.{name}"
            if not _fits(name, value):
                return inner
            if name in _SCHEMA:
                waiting.append((inner, value, depth + 1))
            elif name in _SCHEMAS:
                waiting += [(f"{inner}[{at}]", part, depth + 1) for at, part in enumerate(value)]
            elif name in _NAMED:
                waiting += [(f"{inner}.{of}", part, depth + 1) for of, part in value.items()]
    return None


def _fits(name: str, value: Any) -> bool:  # noqa: ANN401  # any JSON
    if name in _NAMED:
        return isinstance(value, dict)
    if name in _SCHEMAS or name == "enum":
        return isinstance(value, list)
    if name == "required":
        return _are_texts(value)
    return name != "type" or isinstance(value, str) or _are_texts(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
