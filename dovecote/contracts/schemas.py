"""Make the JSON Schema of a class of values, as `outbox.values` writes its objects."""

from collections.abc import Mapping
from enum import Flag
from typing import Any

import msgspec
from msgspec import inspect as found_by
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from dovecote.contracts.rules.constraints import LIMITS
from dovecote.contracts.rules.contract import DIALECT
from outbox.errors import BadSettings

_REFS = "#/$defs/{name}"
_PREFIX = _REFS.removesuffix("{name}")
_CLASSES = (
    found_by.DataclassType,
    found_by.StructType,
    found_by.TypedDictType,
    found_by.NamedTupleType,
)
_LIMITS = (
    *("ge", "gt", "le", "lt", "max_digits", "decimal_places", "multiple_of"),
    *("now_op", "tz_constraint"),
)
_WHOLE: Mapping[str, Any] = {"pattern": "^-?[0-9]+$"}
_KEYS: Mapping[type, Mapping[str, Any]] = {
    found_by.IntType: _WHOLE,
    found_by.UUIDType: {"format": "uuid"},
    found_by.DateType: {"format": "date"},
    found_by.DateTimeType: {"format": "date-time"},
    found_by.TimeType: {"format": "time"},
    found_by.TimeDeltaType: {"format": "duration"},
    found_by.DecimalType: {"format": "decimal"},
}
"""The texts that keys are written as: msgspec's schemas say nothing of them."""

_FORMATS: Mapping[type, str] = {
    found_by.DateTimeType: "date-time",
    found_by.TimeType: "time",
}
"""msgspec names no format where a time zone may be missing, and the type would be lost."""


def schema_of(kind: Any) -> dict[str, Any]:  # noqa: ANN401  # a class of any library
    """
    Return the JSON Schema (2020-12) of the values that objects of a class are written as.

    A field with a default is not required: readers do without it.

    Raises:
        BadSettings: the class, or the type of a field, has no schema; the message names it.
    """
    try:
        made = (
            _by_pydantic(kind) if hasattr(kind, "__pydantic_serializer__") else _by_msgspec(kind)
        )
    except (TypeError, ValueError, NameError, PydanticUserError) as error:
        name = f"{kind.__module__}.{kind.__qualname__}"
        msg = (
            f"{name} has no JSON Schema: {error}; make it a dataclass, a pydantic model, a "
            "msgspec struct or an attrs class with annotated fields"
        )
        raise BadSettings(msg) from error
    return {"$schema": DIALECT, **made}


class _Written(GenerateJsonSchema):
    """Pydantic's schemas, with formats that msgspec names, and limits that JSON Schema lacks."""

    def decimal_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # of pydantic's core
        """Return the schema of a decimal, which is written as its digits."""
        made = super().decimal_schema(schema)
        if made.get("type") == "string":
            made = {"type": "string", "format": "decimal"}
        return _limited(made, schema)

    def enum_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
        """Return the schema of an enumeration."""
        made = super().enum_schema(schema)
        return _combined(made) if issubclass(schema["cls"], Flag) else made

    def datetime_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
        """Return the schema of a datetime."""
        return _limited(super().datetime_schema(schema), schema)

    def date_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
        """Return the schema of a date."""
        return _limited(super().date_schema(schema), schema)

    def time_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
        """Return the schema of a time of day."""
        return _limited(super().time_schema(schema), schema)

    def timedelta_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
        """Return the schema of a duration."""
        return _limited(super().timedelta_schema(schema), schema)

    def dict_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
        """Return the schema of a dictionary, whose keys may be written as texts of some form."""
        made = super().dict_schema(schema)
        if (schema.get("keys_schema") or {}).get("type") == "int":
            made.setdefault("propertyNames", _WHOLE)
        names = self.resolve_ref_schema(made.get("propertyNames") or {})
        if "enum" in names and names.get("type") != "string":
            made["propertyNames"] = {"enum": sorted(map(str, names["enum"]))}
        elif names.get("type") == "integer":
            made["propertyNames"] = _WHOLE
        return made


def _combined(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of flags: a sum of them is a number that no list of them has."""
    kept = {name: each for name, each in made.items() if name not in {"enum", "const"}}
    return {**kept, "type": "integer"}


def _limited(made: dict[str, Any], schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
    limits = {name: str(schema[name]) for name in _LIMITS if schema.get(name) is not None}
    return {**made, LIMITS: limits} if limits else made


def _by_pydantic(kind: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
    return TypeAdapter(kind).json_schema(
        mode="serialization", by_alias=True, schema_generator=_Written
    )


def _by_msgspec(kind: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
    inner: dict[str, Any] = {}

    def hook(other: type) -> dict[str, Any]:
        if not hasattr(other, "__pydantic_serializer__"):
            raise NotImplementedError
        made = _by_pydantic(other)
        for name, each in made.pop("$defs", {}).items():
            if inner.setdefault(name, each) != each:
                msg = f"two classes are called {name}"
                raise TypeError(msg)
        return made

    info = found_by.type_info(kind)
    if not isinstance(info, _CLASSES):
        msg = "it is no class with fields"
        raise TypeError(msg)
    found = _classes(info)
    kinds = [kind, *(each.cls for each in found if each.cls is not kind)]
    (reference, *others), definitions = msgspec.json.schema_components(
        kinds, schema_hook=hook, ref_template=_REFS
    )
    references = dict(zip(kinds, [reference, *others], strict=True))
    for each in found:
        name = references[each.cls]["$ref"].removeprefix(_PREFIX)
        if isinstance(each, found_by.EnumType):
            definitions[name] = _combined(definitions[name])
        else:
            _with_formats(each, definitions[name])
    if clash := set(inner) & set(definitions):
        msg = f"two classes are called {min(clash)}"
        raise TypeError(msg)
    return {**reference, "$defs": dict(sorted({**definitions, **inner}.items()))}


def _classes(info: Any) -> list[Any]:  # noqa: ANN401  # msgspec's own
    """Return the descriptions of all classes with fields, or of flags, that a type leads to."""
    found: dict[Any, Any] = {}
    waiting = [info]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _CLASSES):
            if each.cls in found:
                continue
            found[each.cls] = each
            waiting += [field.type for field in each.fields]
        elif isinstance(each, found_by.EnumType) and issubclass(each.cls, Flag):
            found[each.cls] = each
        waiting += _inner(each)
    return [*found.values()]


def _inner(info: Any) -> list[Any]:  # noqa: ANN401  # as above
    match info:
        case found_by.Metadata():
            return [info.type]
        case found_by.UnionType():
            return [*info.types]
        case found_by.TupleType():
            return [*info.item_types]
        case found_by.DictType():
            return [info.key_type, info.value_type]
    item = getattr(info, "item_type", None)
    return [] if item is None else [item]


def _with_formats(info: Any, schema: dict[str, Any]) -> None:  # noqa: ANN401  # as above
    if "prefixItems" in schema:
        for field, each in zip(info.fields, schema["prefixItems"], strict=False):
            _add_formats(field.type, each)
        return
    properties = schema.get("properties") or {}
    for field in info.fields:
        if (each := properties.get(field.encode_name)) is not None:
            _add_formats(field.type, each)


def _add_formats(info: Any, schema: Any) -> None:  # noqa: ANN401, C901, PLR0912  # one for each kind
    """Name the formats of times in a schema, which is changed."""
    if not isinstance(schema, dict) or "$ref" in schema:
        return
    match info:
        case found_by.Metadata():
            _add_formats(info.type, schema)
        case found_by.DateTimeType() | found_by.TimeType():
            wanted = _FORMATS[type(info)]
            if schema.setdefault("format", wanted) == wanted and info.tz is not None:
                schema[LIMITS] = {"tz_constraint": "aware" if info.tz else "naive"}
        case found_by.UnionType():
            for each in info.types:
                for part in schema.get("anyOf") or [schema]:
                    if _may_be(each, part):
                        _add_formats(each, part)
        case found_by.TupleType():
            for each, part in zip(info.item_types, schema.get("prefixItems") or [], strict=False):
                _add_formats(each, part)
        case found_by.DictType():
            if (names := _names(info.key_type)) is not None:
                schema.setdefault("propertyNames", names)
            _add_formats(info.value_type, schema.get("additionalProperties"))
        case _ if hasattr(info, "item_type"):
            _add_formats(info.item_type, schema.get("items"))


def _names(info: Any) -> Mapping[str, Any] | None:  # noqa: ANN401  # as above
    """Return the schema of a dictionary's keys, which are written as texts."""
    while isinstance(info, found_by.Metadata):
        info = info.type
    match info:
        case found_by.EnumType() if issubclass(info.cls, Flag):
            return _WHOLE
        case found_by.EnumType():
            return {"enum": sorted(str(each.value) for each in info.cls)}
        case found_by.LiteralType():
            return {"enum": sorted(map(str, info.values))}
    return _KEYS.get(type(info))


def _may_be(info: Any, schema: Mapping[str, Any]) -> bool:  # noqa: ANN401  # as above
    """Return whether a part of a union is the schema of one of its types."""
    while isinstance(info, found_by.Metadata):
        info = info.type
    kinds = schema.get("type")
    match info:
        case found_by.DateTimeType() | found_by.TimeType():
            return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
        case found_by.DictType():
            return kinds == "object"
        case found_by.TupleType():
            return kinds == "array"
    return kinds == "array" and hasattr(info, "item_type")
