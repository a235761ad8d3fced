"""Avro's binary encoding, by schemas of the configuration."""

import io
import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

_BINARY = {"bytes", "fixed"}


class AvroCodec:
    """
    Reads and writes events; which schema counts, the `schemaName` header says.

    A schema goes by the name and the full name of its record and by the name of its file. Without
    the header the one that is marked as default counts, and if none is, the first.

    Raises:
        ValueError: a schema is none.
    """

    content_type = "avro/binary"

    def __init__(self, schemas: Sequence[tuple[str, str, bool]]) -> None:
        self._by_name: dict[str, Any] = {}
        self._binary: list[str] = []
        parsed = [self._parsed(path, text) for path, text, _ in schemas]
        defaults = [one for one, (_, _, default) in zip(parsed, schemas, strict=True) if default]
        self._default = (defaults or parsed)[0]

    def decode(self, data: bytes, schema: str | None) -> Any:  # noqa: ANN401  # JSON
        source = io.BytesIO(data)
        found = fastavro.schemaless_reader(source, self._schema(schema), None)
        if source.tell() != len(data):
            msg = f"{len(data) - source.tell()} bytes are left over: it is of another schema"
            raise ValueError(msg)
        return _plain(found) if self._binary else found

    def encode(self, event: Any, schema: str | None) -> bytes:  # noqa: ANN401  # JSON
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema(schema), event, strict=True)
        return out.getvalue()

    def require_writable(self) -> None:
        """
        Look whether events can be written.

        Raises:
            ValueError: a schema has bytes, and events are made of JSON.
        """
        if self._binary:
            msg = f"{', '.join(self._binary)}: `bytes` and `fixed` can be read, but not written"
            raise ValueError(msg)

    def _schema(self, name: str | None) -> Any:  # noqa: ANN401  # fastavro's
        if name is None:
            return self._default
        if name not in self._by_name:
            msg = f'there is no schema "{name}"'
            raise ValueError(msg)
        return self._by_name[name]

    def _parsed(self, path: str, text: str) -> Any:  # noqa: ANN401  # fastavro's
        try:
            # What a logical type would make of numbers and text, no script could read.
            plain = _without_logical_types(json.loads(text))
            parsed = fastavro.parse_schema(plain)
        except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
            msg = f"{path} is not an Avro schema: {error}"
            raise ValueError(msg) from error
        names = {PurePath(path).stem}
        if isinstance(plain, dict) and "name" in plain:
            short = str(plain["name"])
            names |= {short, f"{plain.get('namespace', '')}.{short}".lstrip(".")}
        for name in names:
            self._by_name.setdefault(name, parsed)
        if _has_bytes(plain):
            self._binary.append(path)
        return parsed


def _without_logical_types(schema: Any) -> Any:  # noqa: ANN401  # JSON
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if isinstance(schema, dict):
        return {
            name: _without_logical_types(each)
            for name, each in schema.items()
            if name != "logicalType"
        }
    return schema


def _has_bytes(schema: Any) -> bool:  # noqa: ANN401  # JSON
    if isinstance(schema, list):
        return any(_has_bytes(each) for each in schema)
    if isinstance(schema, dict):
        inner = (schema.get(name) for name in ("type", "items", "values", "fields"))
        return any(_has_bytes(each) for each in inner)
    return schema in _BINARY


def _plain(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return bytes as text with a character for each, as Avro's own JSON has them."""
    match value:
        case bytes():
            return value.decode("latin-1")
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
