"""
Write JSON values in Avro's binary encoding: each exactly as it is, or an error with its path.

The library's own writer cuts 5.7 down to 5 for a `long`, and writes an `int` of any size, which
readers in other languages refuse.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

_RANGES = {"int": 31, "long": 63}
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
# A whole number goes into a branch for whole numbers, and a fraction into the most exact one.
_FITTING = {int: ("int", "long", "double", "float"), float: ("double", "float", "long", "int")}
_LONGEST = 100
_SEVEN_BITS = 0x7F


class AvroWriter:
    """Writes values of one schema, in the form that the library's parser gives it."""

    def __init__(self, schema: Any) -> None:  # noqa: ANN401  # the library's
        self._schema = schema
        self._named: dict[str, Any] = dict(_named(schema))

    def write(self, value: Any) -> bytes:  # noqa: ANN401  # JSON
        """
        Return `value` in the binary encoding; an absent field gets its default.

        Raises:
            ValueError: the schema cannot hold a part of it; the message has the path.
        """
        out = bytearray()
        self._write(self._schema, value, "", out)
        return bytes(out)

    def _write(self, schema: Any, value: Any, path: str, out: bytearray) -> None:  # noqa: ANN401, C901, PLR0912  # JSON; a case a type
        schema = self._resolved(schema)
        if isinstance(schema, list):
            self._union(schema, value, path, out)
            return
        kind = _kind(schema)
        match kind:
            case "null" if value is None:
                pass
            case "boolean" if isinstance(value, bool):
                out.append(value)
            case "int" | "long" if _is_number(value):
                out += _integer(kind, value, path)
            case "float" | "double" if _is_number(value):
                out += _float(kind, value, path)
            case "string" if isinstance(value, str):
                _text(value, out)
            case "enum" if value in schema["symbols"]:
                out += _zigzag(schema["symbols"].index(value))
            case "array" if isinstance(value, list):
                if value:
                    out += _zigzag(len(value))
                for number, each in enumerate(value):
                    self._write(schema["items"], each, f"{path}[{number}]", out)
                out.append(0)
            case "map" if isinstance(value, dict):
                if value:
                    out += _zigzag(len(value))
                for name, each in value.items():
                    _text(name, out)
                    self._write(schema["values"], each, _joined(path, name), out)
                out.append(0)
            case "record" | "error" if isinstance(value, dict):
                self._record(schema, value, path, out)
            case _:
                raise _unfit(path, value, _said(schema))

    def _record(self, schema: Any, value: Any, path: str, out: bytearray) -> None:  # noqa: ANN401  # JSON
        fields = schema["fields"]
        if unknown := {*value} - {each["name"] for each in fields}:
            where = ", ".join(_joined(path, name) for name in sorted(unknown))
            msg = f"{where}: {_said(schema)} has no such field"
            raise ValueError(msg)
        for each in fields:
            inner = _joined(path, each["name"])
            if each["name"] in value:
                self._write(each["type"], value[each["name"]], inner, out)
            elif "default" in each:
                self._write(each["type"], each["default"], inner, out)
            else:
                msg = f"{inner} is missing, and {_said(schema)} has no default for it"
                raise ValueError(msg)

    def _union(self, schema: list[Any], value: Any, path: str, out: bytearray) -> None:  # noqa: ANN401  # JSON
        start, reasons = len(out), []
        for number in sorted(range(len(schema)), key=lambda n: _rank(schema[n], value)):
            branch = self._resolved(schema[number])
            if not _may_be(branch, value):
                continue
            out += _zigzag(number)
            try:
                self._write(branch, value, path, out)
            except ValueError as error:
                reasons.append(error)
                del out[start:]
            else:
                return
        if len(reasons) == 1:  # the path within the only branch that it could be
            raise reasons[0]
        raise _unfit(path, value, f"one of {', '.join(map(_said, schema))}")

    def _resolved(self, schema: Any) -> Any:  # noqa: ANN401  # the library's
        while isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        return self._named.get(schema, schema) if isinstance(schema, str) else schema


def _named(schema: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # the library's
    if isinstance(schema, list):
        for each in schema:
            yield from _named(each)
    elif isinstance(schema, dict):
        if schema["type"] in {"record", "error", "enum", "fixed"}:
            yield schema["name"], schema
        for each in schema.get("fields", ()):
            yield from _named(each["type"])
        for inner in ("items", "values", "type"):
            if isinstance(schema.get(inner), dict | list):
                yield from _named(schema[inner])


def _kind(schema: Any) -> str:  # noqa: ANN401  # the library's
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _rank(schema: Any, value: object) -> int:  # noqa: ANN401  # the library's
    fitting = _FITTING.get(value.__class__, ())
    kind = _kind(schema)
    return fitting.index(kind) if kind in fitting else -1


def _may_be(schema: Any, value: object) -> bool:  # noqa: ANN401  # the library's
    """Return whether the value is of the branch's kind, whether or not all of it fits."""
    match _kind(schema):
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string" | "enum":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "map" | "record" | "error":
            return isinstance(value, dict)
        case _:
            return _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(kind: str, value: float, path: str) -> bytes:
    if not math.isfinite(value) or int(value) != value:
        raise _unfit(path, value, f"{kind}, which has whole numbers")
    bits = _RANGES[kind]
    if not -(2**bits) <= value < 2**bits:
        raise _unfit(path, value, f"{kind}, which has {bits + 1} bits")
    return _zigzag(int(value))


def _float(kind: str, value: float, path: str) -> bytes:
    form = _FLOATS[kind]
    try:
        data = form.pack(value)
    except OverflowError:
        raise _unfit(path, value, f"{kind}, which has no number as large") from None
    # A fraction is always the nearest one; a whole number may mean each of its digits.
    if isinstance(value, int) and form.unpack(data)[0] != value:
        raise _unfit(path, value, f"{kind}, which would change its last digits")
    return data


def _text(value: str, out: bytearray) -> None:
    data = value.encode()
    out += _zigzag(len(data))
    out += data


def _zigzag(number: int) -> bytes:
    left = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while left > _SEVEN_BITS:
        out.append(left & _SEVEN_BITS | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _said(schema: Any) -> str:  # noqa: ANN401  # the library's
    if isinstance(schema, Mapping) and "name" in schema:
        return f"{_kind(schema)} {schema['name']}"
    return _kind(schema)


def _unfit(path: str, value: object, expected: str) -> ValueError:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    return ValueError(f"{path or 'the event'}: {shown} does not fit into {expected}")
