"""The AsyncAPI document of contracts."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dovecote.contracts.rules.contract import Contract, place

VERSION = "3.0.0"
_DEFS = "#/$defs/"
_COMPONENTS = "#/components/schemas/"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_NOT_HERE = frozenset({"$schema", "$defs", "$id"})


def document(contracts: Iterable[Contract], *, title: str, version: str) -> dict[str, Any]:
    """
    Return an AsyncAPI 3.0 document: a channel for each topic, a message for each contract.

    The application that it describes sends the events. Schemas lie in `components`, so that each
    reference in them leads to the document itself.
    """
    found = sorted(contracts, key=place)
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for each in found:
        topic, name = _safe(each.topic), _safe(_message_name(each))
        channel = channels.setdefault(topic, {"address": each.topic, "messages": {}})
        channel["messages"][name] = {"$ref": f"#/components/messages/{name}"}
        operations[f"send.{topic}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{topic}"},
        }
        messages[name] = _message(each, name)
        schemas |= _schemas(each, name)
    return {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _message_name(each: Contract) -> str:
    version = "" if each.version is None else f".v{each.version}"
    return f"{each.topic}.{each.type}{version}"


def _message(each: Contract, name: str) -> dict[str, Any]:
    headers: dict[str, Any] = {
        "ce_id": {"type": "string"},
        "ce_type": {"type": "string", "const": each.type},
        "ce_source": {"type": "string", **({"default": each.source} if each.source else {})},
    }
    required = ["ce_id", "ce_type", "ce_source"]
    if each.version is not None:
        headers["ce_dataversion"] = {"type": "string", "const": str(each.version)}
        required.append("ce_dataversion")
    if each.subject is not None:
        headers["ce_subject"] = {"type": "string", "description": f"The field {each.subject}."}
    if each.dataschema is not None:
        headers["ce_dataschema"] = {"type": "string", "const": each.dataschema}
    found: dict[str, Any] = {
        "name": each.type,
        "title": each.type + ("" if each.version is None else f" v{each.version}"),
        "contentType": "application/json",
        "headers": {"type": "object", "properties": headers, "required": required},
        "payload": {"$ref": f"{_COMPONENTS}{name}"},
    }
    if each.key is not None:
        said = each.key if each.key.startswith("function ") else f"field {each.key}"
        key = {"type": "string", "description": f"The {said}."}
        found["bindings"] = {"kafka": {"key": key, "bindingVersion": "0.5.0"}}
    return found


def _schemas(each: Contract, name: str) -> dict[str, Any]:
    """Return the schema of a contract and its definitions, each as a component."""
    definitions = each.schema.get("$defs") or {}
    names = {inner: f"{name}.{_safe(inner)}" for inner in definitions}
    whole = {key: value for key, value in each.schema.items() if key not in _NOT_HERE}
    found = {name: _moved(whole, names)}
    for inner, schema in definitions.items():
        found[names[inner]] = _moved(schema, names)
    return found


def _moved(schema: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401  # any JSON
    """Return a schema whose references lead to components."""
    if isinstance(schema, list):
        return [_moved(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith(_DEFS):
            inner = value.removeprefix(_DEFS)
            found[key] = _COMPONENTS + names.get(inner, _safe(inner))
        elif key == "properties" and isinstance(value, dict):
            # A field may be called as a keyword is.
            found[key] = {field: _moved(each, names) for field, each in value.items()}
        elif key in {"default", "const", "enum"}:
            found[key] = value
        elif key == "discriminator" and isinstance(value, dict):
            # AsyncAPI's discriminator is the name of a property alone.
            found[key] = value.get("propertyName", "")
        else:
            found[key] = _moved(value, names)
    return found


def _safe(name: str) -> str:
    """Return a name that AsyncAPI allows, of letters, digits and `._-`."""
    return _UNSAFE.sub("_", name)
