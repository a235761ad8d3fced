"""The JSON Schema of a settings file, as it is written: with durations as text, and pointers."""

import ast
import inspect
from datetime import timedelta
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

_POINTER = "Pointer"
_POINTERS = {
    "description": "where a value is: in a variable, in a file, or what a command prints",
    "type": "object",
    "minProperties": 1,
}
_DURATION = {
    "type": "string",
    "pattern": r"^\s*\d+(\.\d+)?(ms|s|m|h)\s*$",
    "examples": ["250ms", "60s", "3m", "2h"],
}


def written(model: type[BaseModel]) -> dict[str, Any]:
    """
    Return the JSON Schema (2020-12) of a TOML file with these settings.

    It is no stricter than the settings themselves, so a file that it refuses is wrong. Nothing is
    required, because variables can set it. It does not know what else is checked, such as
    settings that exclude each other.
    """
    found = model.model_json_schema(by_alias=True, schema_generator=_Written)
    models = {each.__name__: each for each in _models(model)}
    for name, each in {model.__name__: found, **found.get("$defs", {})}.items():
        _describe(each, models.get(name))
    found.setdefault("$defs", {})[_POINTER] = _POINTERS
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of the fields of `model`, inherited ones too, in one line each."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind is BaseModel or not issubclass(kind, BaseModel):
            continue
        (node,) = ast.parse(dedent(inspect.getsource(kind))).body
        for one, after in pairwise(getattr(node, "body", ())):
            match one, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found


class _Written(GenerateJsonSchema):
    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> dict[str, Any]:  # noqa: ARG002  # pydantic's own
        return dict(_DURATION)

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401  # pydantic's own
        return _text(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def _describe(schema: dict[str, Any], model: type[BaseModel] | None) -> None:
    """Let each setting be a pointer or be set by a variable, and say what it means."""
    schema.pop("required", None)
    told: dict[str, str] = {}
    if model is not None:
        by_name = docstrings(model)
        told = {
            info.alias or name: by_name[name]
            for name, info in model.model_fields.items()
            if name in by_name
        }
    for name, each in schema.get("properties", {}).items():
        new = each
        if not ("$ref" in each or each.get("type") == "object"):
            about = {key: each[key] for key in ("default",) if key in each}
            rest = {key: value for key, value in each.items() if key not in {"title", *about}}
            new = {"anyOf": [rest, {"$ref": f"#/$defs/{_POINTER}"}], **about}
        if name in told:
            new = {**new, "description": told[name]}
        schema["properties"][name] = new


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return all models of settings that are loaded, of which the schema names some."""
    known: dict[type[BaseModel], None] = {model: None}
    waiting: list[Any] = [model]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            known[each] = None
            waiting += [
                info.annotation
                for info in each.model_fields.values()
                if info.annotation not in known
            ]
        else:
            waiting += getattr(each, "__args__", ())
    return list(known)


def _text(value: timedelta) -> str:
    milliseconds = value // timedelta(milliseconds=1)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
