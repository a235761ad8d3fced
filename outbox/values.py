"""
Values of events as JSON (RFC 8259), with one form for each type that JSON itself lacks.

| type | form |
|---|---|
| `datetime` | RFC 3339: `2026-11-26T21:22:00Z`; without an offset if it has no time zone |
| `date`, `time` | `2026-11-26`, `21:22:00` |
| `timedelta` | ISO 8601: `P1DT2H`, `-PT0.5S` |
| `Decimal` | its digits as text, so that none is lost: `"1.50"` |
| `UUID` | its text |
| `Enum` | the form of its value |
| `bytes`, `bytearray`, `memoryview` | Base64 (RFC 4648, section 4) |
| dataclass, attrs class | an object with its fields |
| pydantic model or dataclass | as pydantic writes it, by alias |
| msgspec `Struct` | as msgspec writes it |
"""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, singledispatch
from importlib import import_module
from math import isfinite
from operator import attrgetter
from typing import Any
from uuid import UUID

from outbox.errors import InvalidEvent

_DEEPEST = 200
"""How deep a value is looked through for what is wrong with it."""
_MOST_SAID = 200
_MOST_KINDS = 1_000
_SEVERAL = 2
"""From so many names on, `attrgetter` returns a tuple."""
_ROOT = "value"
_MINUTE = timedelta(minutes=1)

# Pydantic's and msgspec's types in which a number may hide.
_NUMBERS_OF_PYDANTIC = re.compile(r"'(float|any|allow)'")
_NUMBERS_OF_MSGSPEC = re.compile(r"\b(FloatType|AnyType|RawType|CustomType)\b")
_SUSPECT = re.compile(rb"null|NaN|Infinity")


def as_json(value: object) -> bytes:
    """
    Return the JSON of a value.

    Raises:
        InvalidEvent: JSON cannot hold it; the message says where in it.
    """
    kind = type(value)
    try:
        if kind is dict:
            return _encode(value).encode()
        if (to_json := _own_json(kind)) is not None:
            return to_json(value)
        members = _members_of(kind)
        # The encoder would ask for them too, in several times the time.
        return _encode(value if members is None else members(value)).encode()
    except Exception as error:  # noqa: BLE001  # a serialiser of the user's own may raise anything
        # JSON's encoder asks nobody about keys, and says no place.
        try:
            return _encode(_plain(value, _ROOT, 0)).encode()
        except InvalidEvent:
            raise
        except (TypeError, ValueError, RecursionError) as again:
            raise _refused(_ROOT, again) from error


def as_key(value: object, what: str) -> bytes | str | None:
    """
    Return a record's key from a value: bytes, or the text that JSON would have.

    Raises:
        InvalidEvent: it is none that stays the same: a number with a fraction, or an object.
    """
    match value:
        case None | bytes():
            return value
        case Enum():
            return as_key(value.value, what)
        case str():
            return value
        case bool():
            pass
        case int():
            return str(value)
        case Decimal() if not value.is_finite():
            pass
        case Decimal() | UUID() | date() | time():
            return str(_form(value))
    msg = f"{what} is {type(value).__name__}, and a key is a text, a number, a date or a UUID"
    raise InvalidEvent(msg)


@singledispatch
def _form(value: Any) -> object:  # noqa: ANN401  # anything at all
    """
    Return what stands for a value that JSON's encoder does not know.

    Raises:
        TypeError, ValueError: nothing does.
    """
    if (to_json := _own_json(type(value))) is not None:
        return json.loads(to_json(value))
    if (members := _members(value)) is not None:
        return members
    msg = f"JSON has no {type(value).__name__}; convert it, or pass bytes"
    raise TypeError(msg)


@_form.register
def _(value: datetime) -> str:
    if (offset := value.utcoffset()) is not None and offset % _MINUTE:
        # RFC 3339 has no such offset. It is the local mean time of long ago.
        value = value.astimezone(UTC)
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


@_form.register
def _(value: date) -> str:
    return value.isoformat()


@_form.register
def _(value: time) -> str:
    if (offset := value.utcoffset()) is not None and offset % _MINUTE:
        msg = "a time of day has an offset from UTC with seconds, which RFC 3339 has not"
        raise ValueError(msg)
    return value.isoformat()


@_form.register
def _(value: timedelta) -> str:
    return _duration(value)


@_form.register
def _(value: Decimal) -> str:
    if not value.is_finite():
        msg = f"JSON has no {value}"
        raise ValueError(msg)
    return str(value)


@_form.register
def _(value: UUID) -> str:
    return str(value)


@_form.register
def _(value: Enum) -> object:
    return value.value


@_form.register(bytes)
@_form.register(bytearray)
@_form.register(memoryview)
def _(value: bytes | bytearray | memoryview) -> str:
    return b64encode(value).decode()


@_form.register(set)
@_form.register(frozenset)
def _(_: object) -> str:
    msg = "a set has no order; pass a list, sorted if you can"
    raise TypeError(msg)


@_form.register
def _(value: type) -> str:
    msg = f"{value.__name__} is a class; pass an object of it"
    raise TypeError(msg)


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_form
).encode


class _NotFinite(ValueError):
    """A number of a model or struct that JSON lacks, and where in it."""

    def __init__(self, place: str, number: float) -> None:
        super().__init__(f"JSON has no {number}")
        self.place = place


def _find_own_json(kind: Any) -> Callable[[Any], bytes] | None:  # noqa: ANN401  # a class of any library
    """Return what writes objects of a class whose library has a form of its own."""
    if hasattr(kind, "__pydantic_serializer__"):
        # It is asked for each time: a class that names others is built anew when they are known.
        return _finite(
            lambda each: bytes(type(each).__pydantic_serializer__.to_json(each, by_alias=True)),
            lambda each: type(each).__pydantic_serializer__.to_python(each, by_alias=True),
            has_numbers=_pydantic_has_numbers(kind),
        )
    if hasattr(kind, "__struct_fields__") and "msgspec" in sys.modules:
        msgspec = sys.modules["msgspec"]
        has_numbers = _msgspec_has_numbers(kind)
        return _finite(msgspec.json.encode, msgspec.to_builtins, has_numbers=has_numbers)
    return None


def _finite(
    write: Callable[[Any], bytes], plainly: Callable[[Any], object], *, has_numbers: bool
) -> Callable[[Any], bytes]:
    """Refuse what a library writes if it has put `null` in the place of NaN or infinity."""
    if not has_numbers:
        return write

    def to_json(value: object) -> bytes:
        text = write(value)
        if _SUSPECT.search(text):
            _require_finite(plainly(value), json.loads(text, parse_constant=_constant), "")
        return text

    return to_json


def _require_finite(value: object, written: object, place: str) -> None:
    match value, written:
        case float(), None if not isfinite(value):
            raise _NotFinite(place, value)
        case Mapping(), dict():
            for each, (name, text) in zip(value.values(), written.items(), strict=False):
                _require_finite(each, text, _inner(place, name))
        case ((list() | tuple()), list()):
            for number, (each, text) in enumerate(zip(value, written, strict=False)):
                _require_finite(each, text, f"{place}[{number}]")


def _constant(name: str) -> None:
    msg = f"JSON has no {name}"
    raise ValueError(msg)


def _pydantic_has_numbers(kind: Any) -> bool:  # noqa: ANN401  # as above
    configured = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None)
    if configured and configured.get("ser_json_inf_nan") == "null":
        return False  # its author wants it so
    schema = kind.__dict__.get("__pydantic_core_schema__")
    # A class that names others which are not known yet has none.
    return not isinstance(schema, dict) or _NUMBERS_OF_PYDANTIC.search(str(schema)) is not None


def _msgspec_has_numbers(kind: type) -> bool:
    try:
        found = import_module("msgspec.inspect").type_info(kind)
    except Exception:  # noqa: BLE001  # its types may name what nobody can import here
        return True
    return _NUMBERS_OF_MSGSPEC.search(repr(found)) is not None


_own_json: Callable[[type], Callable[[Any], bytes] | None] = lru_cache(_MOST_KINDS)(_find_own_json)


def _members(value: Any) -> dict[Any, object] | None:  # noqa: ANN401  # as above
    """Return the members of an object that has any by name."""
    members = _members_of(type(value))
    return None if members is None else members(value)


def _find_members(kind: type) -> Callable[[Any], dict[Any, object]] | None:
    """Return what gives the members by name of an object of a class that has any."""
    if issubclass(kind, Mapping):
        return dict
    if (names := _find_names(kind)) is None:
        return None
    if len(names) < _SEVERAL:
        return lambda value: {name: getattr(value, name) for name in names}
    of = attrgetter(*names)
    return lambda value: dict(zip(names, of(value), strict=True))


def _find_names(kind: Any) -> tuple[str, ...] | None:  # noqa: ANN401  # as above
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return tuple(each.name for each in attributes)
    found = getattr(kind, "__struct_fields__", None) or getattr(kind, "model_fields", None)
    return None if found is None else tuple(found)


_members_of: Callable[[type], Callable[[Any], dict[Any, object]] | None] = lru_cache(_MOST_KINDS)(
    _find_members
)


def _duration(value: timedelta) -> str:
    """Return a duration as ISO 8601 has it, in days and seconds."""
    sign, left = ("-", -value) if value < timedelta(0) else ("", value)
    hours, rest = divmod(left.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{left.microseconds:06}".rstrip("0") if left.microseconds else ""
    days = f"{left.days}D" if left.days else ""
    parts = [(hours, "H"), (minutes, "M")]
    clock = "".join(f"{number}{unit}" for number, unit in parts if number)
    if seconds or fraction or not (days or clock):
        clock += f"{seconds}{fraction}S"
    return f"{sign}P{days}{'T' if clock else ''}{clock}"


def _plain(value: object, path: str, depth: int) -> object:  # noqa: PLR0911  # one for each kind
    """
    Return a value of dictionaries, lists, numbers and texts alone, and find what is none.

    Raises:
        InvalidEvent: something has no form in JSON; the message has its path.
    """
    if depth > _DEEPEST:
        raise _refused(path[:_MOST_SAID], "it is nested too deeply, or contains itself")
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value, path, depth + 1)
        case int():
            return _counted(value, path)
        case str():
            return _text(value, path)
        case float():
            if not isfinite(value):
                raise _refused(path, f"JSON has no {value}")
            return value
        case dict():
            return _object(value, path, depth)
        case list() | tuple():
            return [_plain(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
        case _:
            return _other(value, path, depth)


def _other(value: object, path: str, depth: int) -> object:
    members = _members(value)
    if members is not None and _own_json(type(value)) is None:
        return _object(members, path, depth)
    try:
        found = _form(value)
    except InvalidEvent:
        raise
    except _NotFinite as error:
        raise _refused(f"{path}{error.place}"[:_MOST_SAID], error) from error
    except Exception as error:
        if members is not None:
            # Its library has refused it, and may not say which member is at fault.
            _object(members, path, depth)
            path = _guilty(value, members, path)
        raise _refused(path, error) from error
    return _plain(found, path, depth + 1)


def _guilty(value: Any, members: Iterable[str], path: str) -> str:  # noqa: ANN401  # as above
    """Return the path of the member that pydantic refuses, or that of all if it refuses none."""
    for name in members if hasattr(type(value), "__pydantic_serializer__") else ():
        try:
            type(value).__pydantic_serializer__.to_json(value, include={name})
        except Exception:  # noqa: BLE001  # a serialiser of the user's own may raise anything
            return _inner(path, name)
    return path


def _object(members: Mapping[Any, object], path: str, depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, each in members.items():
        name = _key(key, path)
        if name in found:
            raise _refused(path, f"two keys are written {name[:_MOST_SAID]!r}")
        found[name] = _plain(each, _inner(path, name), depth + 1)
    return found


def _inner(path: str, name: str) -> str:
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{name[:_MOST_SAID]!r}]"


def _key(key: object, path: str) -> str:
    match key:
        case str() if not isinstance(key, Enum):
            return _text(key, path)
        case None | bool() | int() | float() if not isinstance(key, Enum):
            return str(json.dumps(key))
        case Enum() | UUID() | date() | time() | timedelta() | Decimal():
            return _key(_form(key), path)
        case _:
            msg = f"a key is of type {type(key).__name__}, and JSON's keys are texts"
            raise _refused(path, msg)


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(
            path, "the text has a lone surrogate, a character that UTF-8 cannot hold"
        ) from None
    return text


def _counted(number: int, path: str) -> int:
    try:
        str(number)
    except ValueError as error:
        raise _refused(path, error) from None
    return number


def _refused(path: str, why: object) -> InvalidEvent:
    said = (str(why) or type(why).__name__)[:_MOST_SAID]
    return InvalidEvent(f"event {path} cannot be written as JSON: {said}")
