"""
Inputs of any size for everything that reads what comes from outside, made to cost much.

Each has a maker, which takes a number of bytes or of parts, and the work on what it makes.
"""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

from dedup.decoders import deserialized
from dedup.replay import trace
from dedup.retries import copies, letter
from dedup.rules import history, identity, json_text, topics
from dedup.rules.lanes import offset_metadata
from dedup.rules.policies.decode import as_json
from dedup.rules.policies.starlark import compile_expression
from dedup.rules.policies.wording import plain
from dedup.rules.record import Record
from dovecote.process import logs, strict_json
from dovecote.process.settings.durations import duration
from dovecote.push import Composer, Form
from dovecote.push.rules.sending import answer as answers
from dovecote.push.rules.sending import handshake
from dovecote.push.rules.sending.bodies import is_json
from dovecote.push.rules.sending.quota import quota
from dovecote.push.rules.sending.verdict import Answered, Rules, asked_wait
from dovecote.push.rules.subscription.hiding import hiding
from outbox import envelope
from outbox.errors import DovecoteError
from relay.decoding.payload import decode_event
from spark_jobs.operators.aggregation.config import Csv, Xml
from spark_jobs.operators.aggregation.formats.avro import AvroCodec
from spark_jobs.operators.aggregation.formats.formats import codec
from spark_jobs.operators.aggregation.formats.xml import from_xml, to_xml
from spark_jobs.operators.aggregation.loading import parse
from spark_jobs.operators.aggregation.triggers.time_patterns import TimePattern
from spark_jobs.operators.reading import many_reader
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.source import topics as shell


class Bounded(NamedTuple):
    """One reader with one kind of input."""

    make: Callable[[int], Any]
    work: Callable[[Any], Any]
    size: int = 5_000
    """The size of the smaller input."""


def _record(value: bytes | None = b"", headers: Any = ()) -> Record:
    return Record("orders", 0, 7, 1_790_000_000_000, b"k", value, headers)


def _json_read(text: bytes) -> None:
    as_json(_record(text))
    json_text.loads(text)
    is_json(text)
    strict_json.loads(text)


def _windows(text: bytes) -> None:
    failed: list[Any] = []
    [*_SESSIONS([tuple(_record(text))], [0], failed)]


_SESSIONS = many_reader(
    SessionsSettings.model_validate({"gap": "1s", "key": ["a"], "aggregate": "list"})
)


def _refused(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `work` for inputs that it may refuse, if the refusal has its price."""

    def refused(given: Any) -> None:
        with suppress(DovecoteError, ValueError, ArithmeticError, RecursionError):
            work(given)

    return refused


def _headers(count: int) -> list[envelope.Pair]:
    return [(f"ce_x{n}", b"v") for n in range(count)]


_HISTORY: list[envelope.Pair] = [
    (envelope.ATTEMPT, b"1"),
    (envelope.ROUND, b"1"),
    (envelope.ORIGIN, b"orders/0/1"),
]


def _take_headers(record: Record) -> None:
    envelope.decode(record)
    identity.identity(record)
    for retry in (False, True):
        history.believed(record.headers, retry=retry)
    known = identity.identity(record)
    dead = copies.dead(record, known, now=1, error="no")
    letter.letter(_record(None, dead.headers))
    copies.retried(record, known, now=1, due=2, error="no")
    copies.requeued(_record(None, dead.headers))


def _compose(record: Record) -> None:
    for form in ("plain", "cloudevents_binary", "cloudevents_structured"):
        Composer(Form(url="https://a.example", format=form)).request(record)


def _answer(data: bytes) -> None:
    reader = answers.AnswerReader(most=10_000_000, bodyless=False)
    if not reader.feed(data):
        reader.end("no more", cleanly=True)
    _ = reader.failure or reader.answer
    answers.whole(data, most=10_000_000, bodyless=False)


def _answer_by_bytes(data: bytes) -> None:
    reader = answers.AnswerReader(most=10_000_000, bodyless=False)
    for at in range(len(data)):
        reader.feed(data[at : at + 1])


def _one_header(value: str) -> None:
    names = ("ratelimit", "ratelimit-policy", "ratelimit-limit", "webhook-allowed-rate")
    quota(dict.fromkeys(names, value))
    handshake.agreement(200, {"webhook-allowed-origin": "*", "webhook-allowed-rate": value}, "o")
    told = Answered(429, retry_after=value, date=value, reset=value)
    asked_wait(told, Rules(is_dead=lambda _: False), now=_NOW)


_NOW = envelope.parse_time("2026-11-26T10:00:00Z")

_HEAD = b"HTTP/1.1 200 OK\r\n"
_NESTED = {"type": "record", "name": "n", "fields": [{"name": "in", "type": ["null", "n"]}]}
_ARRAY = {"type": "array", "items": ["null", "string"]}
_ENTRIES = {"type": "map", "values": "string"}


def _avro(schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return data.getvalue()


def _avro_reader(schema: Any) -> Callable[[bytes], Any]:
    found = AvroCodec([("a.avsc", json.dumps(schema), True)])
    return lambda data: found.decode(data, None)


def _from_protobuf(data: bytes) -> None:
    from google.protobuf.struct_pb2 import Struct

    deserialized(lambda value, _: Struct.FromString(value))(_record(data))


def _list_of(count: int) -> bytes:
    from tests.unit.relay.decoding.messages import payload

    return payload(headers=tuple(b"x" for _ in range(2 * count)))


_FILTER = compile_expression('value.a == 1 and "x" in value and headers.get("h") == None')
_CSV = codec(Csv(type="csv", columnSeparator=";", fieldNames=("a", "b")), ())
_XML = codec(Xml(type="xml", lists=("r.a.b", "r.b")), ())


def _step(ending: str) -> Callable[[str], Any]:
    return lambda text: parse(text, Path(f"step.{ending}"))


_HIDE = hiding(["Bearer secret-secret-secret", "x" * 4_000])


BOUNDED: dict[str, Bounded] = {
    "json: many fields": Bounded(
        lambda n: json.dumps({f"f{i}": i for i in range(n)}).encode(), _json_read
    ),
    "json: one long text": Bounded(lambda n: b'"' + b"\\u00e4" * 10 * n + b'"', _json_read),
    "json: a long number": Bounded(lambda n: b"1" * 10 * n, _refused(_json_read)),
    "json: a long fraction": Bounded(
        lambda n: b"[0." + b"1" * 10 * n + b"]", _refused(_json_read)
    ),
    "json: many long numbers": Bounded(
        lambda n: b"[" + b",".join([b"9" * 4_000] * (n // 200)) + b"]", _refused(_json_read)
    ),
    "json: deep": Bounded(lambda n: b"[" * n + b"]" * n, _refused(_json_read)),
    "json: a name at the end twice": Bounded(
        lambda n: json.dumps({f"f{i}": i for i in range(n)})[:-1].encode() + b', "z": 1, "z": 2}',
        _refused(strict_json.loads),
    ),
    "json: floats below a long name": Bounded(
        lambda n: b'{"a": "k", "' + b"n" * 20 * n + b'": [' + b"1.5, " * n + b"1.5]}", _windows
    ),
    "trace: a line with many headers": Bounded(
        lambda n: [
            json.dumps(
                {"topic": "t", "partition": 0, "offset": 0, "timestamp": 0}
                | {"headers": [["a", "b"]] * n}
            ).encode()
        ],
        lambda lines: [each.record() for each in trace.read(lines)],  # type: ignore[union-attr]  # a record
    ),
    "xml: many attributes": Bounded(
        lambda n: b"<a " + b" ".join(b"a%d='x'" % i for i in range(n)) + b"/>", from_xml, 5_000
    ),
    "xml: many namespaces": Bounded(
        lambda n: (
            b"<a " + b" ".join(b"xmlns:a%d='u%d' a%d:x='1'" % (i, i, i) for i in range(n)) + b"/>"
        ),
        from_xml,
        2_000,
    ),
    "xml: many children": Bounded(
        lambda n: b"<r>" + b"".join(b"<c%d/>x<a/>&#65;" % i for i in range(n)) + b"</r>",
        lambda data: _XML.encode(_XML.decode(data, None), None),
    ),
    "xml: children below a long name": Bounded(
        lambda n: (
            b"<r><" + b"n" * (20 * n) + b">" + b"<b/>" * n + b"</" + b"n" * (20 * n) + b"></r>"
        ),
        lambda data: _XML.decode(data, None),
        300,  # longer names are no names
    ),
    "xml: written attributes": Bounded(
        lambda n: {"a": {f"@a{i}": "x" for i in range(n)}}, _refused(to_xml)
    ),
    "csv: many columns": Bounded(
        lambda n: b";".join([b"x"] * n), _refused(lambda d: _CSV.decode(d, None))
    ),
    "csv: many lines": Bounded(lambda n: b"a;b\n" * n, _refused(lambda d: _CSV.decode(d, None))),
    "csv: quotes": Bounded(
        lambda n: b'"' + b'""' * 10 * n + b'";b', lambda d: _CSV.decode(d, None)
    ),
    "avro: a list": Bounded(lambda n: _avro(_ARRAY, ["x", None] * n), _avro_reader(_ARRAY)),
    "avro: a map": Bounded(
        lambda n: _avro(_ENTRIES, {str(i): "x" for i in range(n)}), _avro_reader(_ENTRIES)
    ),
    "avro: deep": Bounded(lambda n: b"\2" * n + b"\0", _refused(_avro_reader(_NESTED))),
    "avro: blocks of nothing": Bounded(lambda n: b"\2\0" * n + b"\0", _avro_reader(_ARRAY)),
    "protobuf: bytes of nothing": Bounded(lambda n: b"\x0a\0" * n, _from_protobuf),
    "yaml: many keys": Bounded(
        lambda n: "".join(f"k{i}: v\n" for i in range(n)), _step("yaml"), 400
    ),
    "yaml: a long text": Bounded(lambda n: "a: |\n" + "  text\n" * n, _step("yaml"), 2_000),
    "yaml: a flow": Bounded(lambda n: "a: [" + "x, " * n + "]", _step("yaml"), 400),
    "yaml: deep": Bounded(lambda n: "a: " + "[" * n + "]" * n, _refused(_step("yaml")), 1_000),
    "yaml: aliases of aliases": Bounded(
        lambda n: (
            "a0: &a0 [x, x]\n"
            + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, n))
        ),
        _refused(lambda text: json.dumps(_step("yaml")(text))),
        3,
    ),
    "yaml: merges of merges": Bounded(
        lambda n: (
            "a0: &a0 {x: 1}\n"
            + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, n))
        ),
        _refused(lambda text: json.dumps(_step("yaml")(text))),
        3,
    ),
    "hocon: many keys": Bounded(
        lambda n: "".join(f"k{i} = v\n" for i in range(n)), _step("conf"), 100
    ),
    "hocon: deep names": Bounded(
        lambda n: ".".join(["a"] * n) + " = 1", _refused(_step("conf")), 50
    ),
    "hocon: a list": Bounded(lambda n: "a = [" + "x, " * n + "x]", _step("conf"), 100),
    "hocon: references": Bounded(
        lambda n: "a0 = x\n" + "".join(f"a{i} = ${{a{i - 1}}}\n" for i in range(1, n)),
        _refused(_step("conf")),
        20,
    ),
    "hocon: references of references": Bounded(
        lambda n: (
            "a0 = x\n" + "".join(f"a{i} = ${{a{i - 1}}}${{a{i - 1}}}\n" for i in range(1, n))
        ),
        _refused(_step("conf")),
        3,
    ),
    "hocon: a long text": Bounded(lambda n: 'a = "' + "x\\u00e4" * n + '"', _step("conf")),
    "cloudevents: many headers": Bounded(
        lambda n: _record(b"", [*_headers(n), *_HISTORY]), _take_headers
    ),
    "cloudevents: one name many times": Bounded(
        lambda n: _record(b"", [("ce_id", b"7")] * n), _take_headers
    ),
    "cloudevents: a long time": Bounded(
        lambda n: _record(b"", [("ce_time", b"2" * 20 * n)]), _refused(lambda r: r.event)
    ),
    "push: many attributes": Bounded(lambda n: _record(b"{}", _headers(n)), _refused(_compose)),
    "push: a long key, type and value": Bounded(
        lambda n: _record(
            b"\xc3\xa4" * 20 * n,
            [("ce_type", b"\xc3\xa4" * 20 * n), ("content-type", b"/json " * n)],
        ),
        _refused(_compose),
    ),
    "http: many header lines": Bounded(
        lambda n: _HEAD + b"a: b\r\n" * n + b"\r\n", _answer, 1_000
    ),
    "http: folded lines": Bounded(
        lambda n: _HEAD + b"a: b\r\n" + b" c\r\n" * n + b"\r\n", _answer, 1_000
    ),
    "http: chunks of a byte": Bounded(
        lambda n: _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * n + b"0\r\n\r\n",
        _answer,
    ),
    "http: a chunk's long size": Bounded(
        lambda n: _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 20 * n + b"g\r\n", _answer
    ),
    "http: byte by byte": Bounded(
        lambda n: _HEAD + b"a: " + b"b" * n + b"\r\n\r\n", _answer_by_bytes, 5_000
    ),
    "http: a line that never ends": Bounded(
        lambda n: b"HTTP/1.1 " + b" " * n, _answer_by_bytes, 5_000
    ),
    "http: a header of many numbers": Bounded(lambda n: "1;w=1;q=2," * n, _one_header, 1_000),
    "http: a header of digits": Bounded(lambda n: "9" * n, _one_header),
    "http: a header of dates": Bounded(
        lambda n: "Thu, 26 Nov 2026 " * n + "(" * n, _one_header, 2_000
    ),
    "http: a masked body": Bounded(lambda n: "secret-" * n, lambda text: _HIDE(text, cut=True)),
    "a pattern": Bounded(lambda n: "a" * n, topics.matcher("^((a{0,20})*)*b")),
    "a long pattern": Bounded(lambda n: f"^{'(a|b)*' * n}", _refused(topics.matcher), 50),
    "a shell pattern": Bounded(
        lambda n: "a" * min(n, 249), lambda t: shell.entry_of(t, ("*a*a*a*a*a*b",)), 30
    ),
    "a time of day": Bounded(
        lambda n: "1" * 20 * n, _refused(TimePattern("HH:mm:ss.SSS VV").parse)
    ),
    "a zone": Bounded(
        lambda n: "11:05:00 " + "a/" * 10 * n, _refused(TimePattern("HH:mm:ss VV").parse)
    ),
    "a duration": Bounded(lambda n: "1" * 20 * n + "x", _refused(duration)),
    "starlark: a large value": Bounded(
        lambda n: as_json(
            _record(json.dumps({"a": 1, "x": ["y"] * n}).encode(), [("h", b"1")] * n)
        ),
        _FILTER,
    ),
    "a log line": Bounded(
        lambda n: "\n\x1b" * 20 * n, lambda text: (logs.one_line(text), plain(text))
    ),
    "a last line": Bounded(lambda n: ValueError("line\n" * 20 * n), logs.last_line),
    "an offset's metadata": Bounded(
        lambda n: "dove1r" + "gICA" * n, lambda text: offset_metadata.decode(0, text), 500
    ),
    "the log of Postgres: many headers": Bounded(
        _list_of, lambda data: decode_event(data, 0, 1, {})
    ),
    "a letter's place": Bounded(lambda n: b"/" * 20 * n + b" 1 x", copies.left_of),
}
