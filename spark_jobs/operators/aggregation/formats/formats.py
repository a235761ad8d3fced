"""Convert the bytes of a record to an event, and back."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dedup.rules.json_text import loads, require_finite
from outbox.envelope import Pair
from outbox.errors import BadSettings, DovecoteError
from spark_jobs.operators.aggregation.config import Avro, Csv, Format, Xml
from spark_jobs.operators.aggregation.formats.avro import AvroCodec
from spark_jobs.operators.aggregation.formats.json_text import dumps
from spark_jobs.operators.aggregation.formats.xml import Names, from_xml, to_xml
from spark_jobs.operators.aggregation.settings import AggregationSettings, Text

SCHEMA_NAME = "schemaName"
"""The header that names the schema of a record."""


_END = "\r\n"

# A record is as long as its topic allows, and each of its columns may be that long.
csv.field_size_limit(2**31 - 1)


class BadRecord(DovecoteError):
    """Bytes that do not match their format, or an event that cannot be written in it."""


class Headed(Protocol):
    """A record or an event with headers."""

    @property
    def headers(self) -> Sequence[Pair]: ...


class Codec(Protocol):
    """One format; `schema` is the value of the `schemaName` header."""

    content_type: str

    def decode(self, data: bytes, schema: str | None) -> Any: ...  # noqa: ANN401  # JSON
    def encode(self, event: Any, schema: str | None) -> bytes: ...  # noqa: ANN401  # JSON


def reading(settings: AggregationSettings) -> Callable[[bytes | None, str | None], Any]:
    """
    Return a function that reads the events of a step.

    Raises:
        BadSettings: a schema is not valid, or does not bound its records.
    """
    found = codec(settings.step.format.input, settings.input_schemas)
    if isinstance(found, AvroCodec):
        _require(found.require_readable)
    if not settings.has_scripts:
        return _guarded(found.decode)

    def decode(data: bytes, schema: str | None) -> Any:  # noqa: ANN401  # JSON
        event = found.decode(data, schema)
        if isinstance(found, AvroCodec):
            require_finite(event)  # scripts get events as JSON
        return event

    return _guarded(decode)


def writing(settings: AggregationSettings) -> tuple[Callable[[Any, str | None], bytes], str]:
    """
    Return a function that writes the events of a step, and their media type.

    Raises:
        BadSettings: a schema is not valid, or scripts cannot fill it.
    """
    found = codec(settings.step.format.output, settings.output_schemas)
    if isinstance(found, AvroCodec):
        _require(found.require_writable)
    return _guarded(found.encode), found.content_type


def codec(format_: Format, schemas: Sequence[Text]) -> Codec:
    """
    Return the codec that `format_` describes.

    Raises:
        BadSettings: a schema is not valid.
    """
    if isinstance(format_, Csv):
        return _CsvCodec(format_)
    if isinstance(format_, Xml):
        return _XmlCodec(format_)
    if isinstance(format_, Avro):
        try:
            found = [(each.path, each.text, each.default) for each in schemas]
            return AvroCodec(found, [each.id for each in schemas if each.id is not None])
        except ValueError as error:
            raise BadSettings(str(error)) from error
    return _JsonCodec()


def _require(look: Callable[[], None]) -> None:
    try:
        look()
    except ValueError as error:
        raise BadSettings(str(error)) from error


def _guarded(work: Callable[[Any, str | None], Any]) -> Callable[[Any, str | None], Any]:
    def guarded(given: Any, schema: str | None) -> Any:  # noqa: ANN401  # JSON, or bytes
        if given is None:
            msg = "there is no value"
            raise BadRecord(msg)
        try:
            return work(given, schema)
        # Libraries raise all kinds of errors at bytes that were made to break them.
        except Exception as error:
            msg = " ".join(str(error).split())[:500] or type(error).__name__
            raise BadRecord(msg) from error

    return guarded


class _JsonCodec:
    content_type = "application/json"

    @staticmethod
    def decode(data: bytes, _: str | None) -> Any:  # noqa: ANN401  # JSON
        return loads(data)

    @staticmethod
    def encode(event: Any, _: str | None) -> bytes:  # noqa: ANN401  # JSON
        return dumps(event)


class _XmlCodec:
    content_type = "application/xml"

    def __init__(self, settings: Xml) -> None:
        self._lists, self._names = {*settings.lists}, Names(settings.namespaces)

    def decode(self, data: bytes, _: str | None) -> Any:  # noqa: ANN401  # JSON
        return from_xml(data, self._names, self._lists)

    def encode(self, event: Any, _: str | None) -> bytes:  # noqa: ANN401  # JSON
        return to_xml(event, self._names)


class _CsvCodec:
    content_type = "text/csv"

    def __init__(self, settings: Csv) -> None:
        self._separator, self._names = settings.column_separator, settings.field_names

    def decode(self, data: bytes, _: str | None) -> dict[str, str]:
        rows = csv.reader(
            io.StringIO(data.decode("utf-8-sig"), newline=""),
            delimiter=self._separator,
            strict=True,
        )
        found = filter(None, rows)
        line = next(found, None)
        # Further lines are counted, and not kept: each takes many times its bytes.
        lines = 0 if line is None else 1 + sum(1 for _ in found)
        if line is None or lines > 1:
            msg = f"a record is one line, not {lines}"
            raise ValueError(msg)
        if len(line) != len(self._names):
            msg = f"the line has {len(line)} columns, not {len(self._names)}"
            raise ValueError(msg)
        return dict(zip(self._names, line, strict=True))

    def encode(self, event: Any, _: str | None) -> bytes:  # noqa: ANN401  # JSON
        if not isinstance(event, dict):
            msg = "a line is made of an object"
            raise TypeError(msg)
        if unknown := [name for name in event if name not in self._names]:
            msg = f"there is no column {', '.join(map(str, unknown))}"
            raise ValueError(msg)
        out = io.StringIO(newline="")
        # With its own line end; otherwise it would not quote a line end within a text.
        csv.writer(out, delimiter=self._separator, lineterminator=_END).writerow(
            [_cell(name, event.get(name)) for name in self._names]
        )
        return out.getvalue().removesuffix(_END).encode()


def _cell(name: str, value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str | int | float):
        return value
    msg = f'the column "{name}" cannot hold a list or an object'
    raise TypeError(msg)


def schema_name(record: Headed) -> str | None:
    """
    Return the value of a record's `schemaName` header.

    Raises:
        BadRecord: the value is not text.
    """
    for name, value in record.headers:
        if name == SCHEMA_NAME and value is not None:
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                msg = f"header {SCHEMA_NAME} is not UTF-8 text"
                raise BadRecord(msg) from error
    return None
