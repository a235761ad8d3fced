"""A recorded trace, one JSON object a line: records, and moves of the wall clock."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pydantic_core import from_json

from dovecote.process import strict_json
from dovecote.process.plainly import words
from outbox.envelope import Record
from outbox.errors import DovecoteError


def _whole(value: object) -> object:
    """Return a whole number as an integer: JSON has one kind of numbers, and 1.76e12 is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Whole = Annotated[StrictInt, BeforeValidator(_whole)]
_Number = Annotated[_Whole, Field(ge=0)]
_HeaderValue: TypeAlias = StrictStr | StrictInt | None


class BadTrace(DovecoteError):
    """A line of the trace is not valid; the message has its number."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Traced(_Line):
    """A record, and when it was processed."""

    topic: Annotated[StrictStr, Field(min_length=1)]
    partition: _Number
    offset: _Number
    timestamp: _Whole
    """Event time, in milliseconds since 1970."""
    key: StrictStr | None = None
    value: Any = None
    """Any JSON; null is a tombstone."""
    headers: dict[StrictStr, _HeaderValue] | list[tuple[StrictStr, _HeaderValue]] = []
    """An object, or a list of pairs if order or repeated names matter."""
    arrival: _Whole | None = None
    """Wall clock when it was processed, in milliseconds; None: the clock did not move."""

    def record(self, *, is_json: bool = True) -> Record:
        """
        Return the record as Kafka held it.

        Its value is JSON, or text or `{"base64": …}` in place of the bytes.

        Raises:
            BadTrace: the value is no base64.
        """
        return Record(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp=self.timestamp,
            key=None if self.key is None else self.key.encode(),
            value=None if self.value is None else self._bytes(is_json=is_json),
            headers=[
                (name, None if value is None else str(value).encode())
                for name, value in _pairs(self.headers)
            ],
        )

    def _bytes(self, *, is_json: bool) -> bytes:
        match self.value:
            case str() if not is_json:
                return self.value.encode()
            case {"base64": str(text)} if not is_json and len(self.value) == 1:
                try:
                    return b64decode(text, validate=True)
                except ValueError as error:
                    where = f"{self.topic}/{self.partition}/{self.offset}"
                    msg = f"the value of {where} in the trace is not base64: {error}"
                    raise BadTrace(msg) from error
            case _:
                return _value(self.value)


class Advance(_Line):
    """The wall clock moved, and no record came."""

    advance_to: _Whole


class End(_Line):
    """Nothing more comes; what is not due stays open."""

    end: Literal[True]


Item: TypeAlias = Traced | Advance | End


def read(lines: Iterable[bytes]) -> Iterator[Item]:
    """
    Yield the item of each line; skip blank lines.

    Raises:
        BadTrace: a line is not JSON, lacks a field, has one too many, or comes after the end.
    """
    ended = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if ended:
            msg = f'line {number} of the trace comes after {{"end": true}}'
            raise BadTrace(msg)
        item = _item(number, line)
        ended = isinstance(item, End)
        yield item


def shown(value: bytes) -> object:
    """Return bytes that are not JSON as a trace has them: text, or `{"base64": …}`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def to_json(value: object) -> bytes:
    """
    Return `value` as compact JSON, always the same bytes for the same value.

    Raises:
        ValueError, TypeError: JSON cannot hold it.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _item(number: int, line: bytes) -> Item:
    try:
        found = from_json(line, allow_inf_nan=False)
        strict_json.loads(line)
    except ValueError as error:
        msg = f"line {number} of the trace is not JSON: {error}"
        raise BadTrace(msg) from error
    if not isinstance(found, dict):
        msg = f"line {number} of the trace is not a JSON object"
        raise BadTrace(msg)
    kind = Advance if "advance_to" in found else End if "end" in found else Traced
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        what = words(first["type"], first["msg"])
        msg = f"line {number} of the trace: {field}: {what}"
        raise BadTrace(msg) from error


def _value(value: object) -> bytes:
    # 1e999 becomes Infinity here, which decoding refuses: that record fails, not the trace.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _pairs(
    headers: dict[str, str | int | None] | list[tuple[str, str | int | None]],
) -> Iterable[tuple[str, str | int | None]]:
    return headers.items() if isinstance(headers, dict) else headers
