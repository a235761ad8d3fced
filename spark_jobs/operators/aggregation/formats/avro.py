"""Avro's binary encoding, with schemas from the configuration."""

import io
import json
import struct
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import fastavro
from fastavro import _read_py  # it has no other name for the reader in Python
from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    to_parsing_canonical_form,
)

from dovecote.process import strict_json
from spark_jobs.operators.aggregation.formats.avro_writing import AvroWriter

_BINARY = {"bytes", "fixed"}
_NAMED = {"record", "error", "fixed"}
_FRAME = struct.Struct(">BI")
"""The beginning of a record from a schema registry's serialiser: byte 0, and the schema's id."""


class AvroCodec:
    """
    Reads and writes events with the schema that the `schemaName` header names.

    A schema is known by the name and the full name of its record, and by the name of its file.
    Without the header the schema marked as default is used; without a default, the first one.
    If schemas have `ids`, records begin with byte 0 and the id of their schema in four bytes.

    Raises:
        ValueError: a schema is not valid.
    """

    content_type = "avro/binary"

    def __init__(self, schemas: Sequence[tuple[str, str, bool]], ids: Sequence[int] = ()) -> None:
        self._by_name: dict[str, Any] = {}
        self._binary: list[str] = []
        self._boundless: list[str] = []
        self._writers: dict[int, AvroWriter] = {}
        self._prints: dict[int, str] = {}
        self._recurses = False
        parsed = [self._parsed(path, text) for path, text, _ in schemas]
        self._by_id = dict(zip(ids, parsed, strict=False))
        self._ids = {id(schema): number for number, schema in self._by_id.items()}
        defaults = [one for one, (_, _, default) in zip(parsed, schemas, strict=True) if default]
        self._default = (defaults or parsed)[0]

    def decode(self, data: bytes, schema: str | None) -> Any:  # noqa: ANN401  # JSON
        if self._by_id:
            found = self._framed(data)
            return self._read(data[_FRAME.size :], found)
        try:
            return self._read(data, self._schema(schema))
        except (ValueError, EOFError, IndexError) as error:
            if data[:1] != b"\0" or len(data) < _FRAME.size:
                raise
            number = _FRAME.unpack_from(data)[1]
            msg = (
                f"{str(error) or type(error).__name__}; it begins as the serialiser of a schema "
                f"registry writes: if {number} is the id of its schema there, "
                "set `id` beside the schema's path"
            )
            raise ValueError(msg) from error

    def _framed(self, data: bytes) -> Any:  # noqa: ANN401  # fastavro's
        magic, number = _FRAME.unpack_from(data) if len(data) >= _FRAME.size else (None, None)
        if magic != 0:
            msg = "it does not begin with byte 0 and the id of its schema in a registry"
            raise ValueError(msg)
        if number not in self._by_id:
            known = ", ".join(map(str, self._by_id))
            msg = f"its schema has the id {number}, and those here have {known}: add it by its id"
            raise ValueError(msg)
        return self._by_id[number]

    def _read(self, data: bytes, schema: Any) -> Any:  # noqa: ANN401  # fastavro's; JSON
        source = io.BytesIO(data)
        # A record of a few thousand bytes may nest that many levels deep if its schema lets it,
        # and the reader in C then kills the process.
        read = _read_py.schemaless_reader if self._recurses else fastavro.schemaless_reader
        try:
            found = read(source, schema, None)
        except RecursionError as error:
            msg = "it nests too deeply"
            raise ValueError(msg) from error
        if source.tell() != len(data):
            msg = f"{len(data) - source.tell()} bytes are left over: it is of another schema"
            raise ValueError(msg)
        return _plain(found) if self._binary else found

    def encode(self, event: Any, schema: str | None) -> bytes:  # noqa: ANN401  # JSON
        found = id(self._schema(schema))
        data = self._writers[found].write(event)
        return _FRAME.pack(0, self._ids[found]) + data if self._ids else data

    def fingerprints(self) -> dict[str, str]:
        """Return a hash of each schema's meaning, by its names; "" names the default one."""
        ids = {f"id {number}": schema for number, schema in self._by_id.items()}
        found = {**self._by_name, **ids, "": self._default}
        return {name: self._prints[id(schema)] for name, schema in found.items()}

    def require_readable(self) -> None:
        """
        Check that records can be read.

        Raises:
            ValueError: a record of a few bytes could be larger than all memory.
        """
        if self._boundless:
            msg = (
                f"{', '.join(self._boundless)}: an array whose item takes no bytes cannot be "
                "read, because nothing bounds its length"
            )
            raise ValueError(msg)

    def require_writable(self) -> None:
        """
        Check that events can be written.

        Raises:
            ValueError: a schema has bytes, but events are JSON.
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
            # No script could read the values that logical types make of numbers and text.
            plain = _without_logical_types(strict_json.loads(text))
            parsed = fastavro.parse_schema(plain)
        except UnknownType as error:
            msg = f"{path} is not an Avro schema: there is no type {json.dumps(error.name)}"
            raise ValueError(msg) from error
        except KeyError as error:
            msg = f"{path} is not an Avro schema: {error} is missing"
            raise ValueError(msg) from error
        except TypeError as error:
            msg = f"{path} is not an Avro schema: that is an object, a list or a type's name"
            raise ValueError(msg) from error
        except (SchemaParseException, ValueError) as error:
            msg = f"{path} is not an Avro schema: {error}"
            raise ValueError(msg) from error
        names = {PurePath(path).stem}
        if isinstance(plain, dict) and "name" in plain:
            short = str(plain["name"])
            names |= {short, f"{plain.get('namespace', '')}.{short}".lstrip(".")}
        for name in names:
            self._by_name.setdefault(name, parsed)
        self._prints[id(parsed)] = fingerprint(to_parsing_canonical_form(parsed), "SHA-256")
        self._writers[id(parsed)] = AvroWriter(parsed)
        if _has_bytes(plain):
            self._binary.append(path)
        shape = _Shape(plain)
        self._recurses |= shape.recurses
        if shape.is_boundless:
            self._boundless.append(path)
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


class _Shape:
    """The properties of the records that a schema allows."""

    def __init__(self, schema: Any) -> None:  # noqa: ANN401  # JSON
        self.recurses = self.is_boundless = False
        self._empty: dict[str, bool] = {}
        self._within: list[str] = []
        self._is_empty(schema)

    def _is_empty(self, schema: Any) -> bool:  # noqa: ANN401  # JSON
        """Return whether a value of the schema takes no bytes; look at everything in it."""
        if isinstance(schema, list):
            _ = [self._is_empty(each) for each in schema]
            return False  # the number of the branch
        if not isinstance(schema, dict):
            name = str(schema).rpartition(".")[2]
            self.recurses |= name in self._within
            return schema == "null" or self._empty.get(name, False)
        kind = schema.get("type")
        name = str(schema.get("name", "")).rpartition(".")[2]
        match kind:
            case "record" | "error":
                self._within.append(name)
                found = [self._is_empty(each.get("type")) for each in schema.get("fields", ())]
                self._within.pop()
                self._empty[name] = all(found)
            case "fixed":
                self._empty[name] = schema.get("size") == 0
            case "array":
                self.is_boundless |= self._is_empty(schema.get("items"))
            case "map":
                self._is_empty(schema.get("values"))
            case "enum":
                pass
            case _:
                return self._is_empty(kind)
        return kind in _NAMED and self._empty[name]


def _has_bytes(schema: Any) -> bool:  # noqa: ANN401  # JSON
    if isinstance(schema, list):
        return any(_has_bytes(each) for each in schema)
    if isinstance(schema, dict):
        inner = (schema.get(name) for name in ("type", "items", "values", "fields"))
        return any(_has_bytes(each) for each in inner)
    return schema in _BINARY


def _plain(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return bytes as text with one character for each, as Avro's own JSON does."""
    match value:
        case bytes():
            return value.decode("latin-1")
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
