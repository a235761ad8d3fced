"""
The front doors: what comes from outside, in any form, and what must become of it.

Each door takes one input. It passes if nothing but an error that tells its reader what to do comes
out of it, and if no record is lost on the way.
"""

import contextlib
import json
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from hypothesis import strategies as st
from pydantic import BaseModel

from dedup.replay import trace
from dedup.retries import copies, letter
from dedup.rules import history, identity
from dedup.rules.policies.policies import every, exact, first_match, latest
from dedup.rules.policies.results import Dead, Done, Result, Retry, Skip
from dedup.rules.record import Record
from dedup.settings.consumer import ConsumeSettings
from dedup.settings.dead import DeadSettings
from dovecote.process.settings.loading import load
from dovecote.push import Composer, Form
from dovecote.push.rules.sending.answer import AnswerReader
from dovecote.push.rules.sending.request import Format
from dovecote.push.settings import PushSettings
from outbox import envelope
from outbox.errors import DovecoteError, InvalidEvent
from relay.decoding.payload import decode_events
from relay.decoding.pgoutput import Decoder
from relay.rules.places.progress import LogPosition
from relay.settings import RelaySettings
from spark_jobs.operators.aggregation.loading import parse
from spark_jobs.operators.reading import many_reader
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.query.settings import DedupSettings
from spark_jobs.rows.records import packed, unpacked
from spark_jobs.stateful.settings import DelayJob, PairingJob, SessionsJob

_NOW = 1_790_000_000_000
_OURS = sorted(envelope.DELIVERY | {envelope.ID, envelope.SOURCE, envelope.TYPE, envelope.TIME})
_ODD_VALUES = (
    *(b"", b"1", b"-1", b"0", b"9" * 30, b"1.5", b"\xff", b"\0", b"orders/0/7", b"a\r\nb: c"),
    *(b"2026-11-26T10:00:00Z", b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999+14:00"),
    *(b"x" * 5_000, b"application/json", "ü€\ud7ff".encode(), b"%", b"/"),
)
_ODD_JSON = (
    *(b"", b"null", b"{}", b"[]", b'{"a": 1, "a": 2}', b"NaN", b"1e999", b'{"a": 1e999}', b"{"),
    *(
        b'{"a": ' * 300,
        b"[" * 5_000,
        b"1" * 400,
        b'"\\ud800"',
        b'{"t": 1.76e12}',
        b"\xef\xbb\xbf{}",
    ),
    *(b'{"a": {"b": [1, "x", null]}, "t": 1790000000000}', b"\xff\xfe{\0}\0"),
)
_TIMES = (-1, 0, 1, _NOW, _NOW * 1_000, _NOW * 1_000_000, 2**63 - 1, -(2**63), 253_402_300_800_000)

_bytes = st.binary(max_size=40) | st.sampled_from(_ODD_JSON)
_headers = st.lists(
    st.tuples(
        st.sampled_from(_OURS) | st.text(max_size=8),
        st.none() | st.binary(max_size=12) | st.sampled_from(_ODD_VALUES),
    ),
    max_size=9,
)


def _made(
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[envelope.Pair],
) -> Record:
    return Record("orders", partition, offset, timestamp, key, value, headers)


records = st.builds(
    _made,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.sampled_from(_TIMES) | st.integers(-(2**63), 2**63 - 1),
    st.none() | _bytes,
    st.none() | _bytes,
    _headers,
)


def _record_of(copy: copies.Copy, topic: str) -> Record:
    return Record(topic, 0, 1, _NOW, *copy)


def take_record(record: Record) -> None:
    """Decode a record, and set it aside in every way: it is readable again, or a dead letter."""
    for retry in (False, True):
        mine = record._replace(headers=history.believed(record.headers, retry=retry))
        known = identity.identity(mine)
        with contextlib.suppress(DovecoteError):
            assert mine.event.id
        readable = True
        try:
            envelope.identity(mine)
        except InvalidEvent:
            readable = False
        for copy in (
            copies.dead(mine, known, now=_NOW, error="no\r\n" * 99),
            copies.emptied(mine, now=_NOW, error="too large"),
        ):
            buried = _record_of(copy, "orders.dead")
            found = letter.letter(buried)
            assert "\n" not in found.reason
            if readable and not found.without_value:
                assert (found.source, found.id) == envelope.identity(mine)
            with contextlib.suppress(InvalidEvent):
                again = _record_of(copies.requeued(buried), "orders")
                assert envelope.delivery(again).attempt == 1
        with contextlib.suppress(DovecoteError):
            for later in (
                copies.returned(mine, known),
                copies.retried(mine, known, now=_NOW, due=_NOW + 1, error="no"),
            ):
                again = _record_of(later, "orders.retry")
                assert not readable or envelope.identity(again) == envelope.identity(mine)


_POLICIES = (exact, latest, first_match, every)
_RESULTS: tuple[Result, ...] = (Done(), Dead("no"), Retry("no"), Skip("no"))


def take_batch(batch: list[Record]) -> None:
    """Give the records of a key to each policy: each record gets one verdict, in order."""

    def handle(record: Record) -> Result:
        chosen = record.offset % 6
        if chosen == 5:  # one in six
            raise ValueError(record.value)
        return _RESULTS[chosen % 4]

    def matches(record: Record) -> bool:
        return bool(record.event.type)

    for policy in _POLICIES:
        found = [
            each.record
            for each in policy(batch, matches=matches, handle=handle, identity=identity.identity)
        ]
        assert sorted(map(id, found)) == sorted(map(id, batch)), policy


def take_delivery(record: Record) -> None:
    """Compose requests for a record: each has lines of its own, or is refused by name."""
    for form in get_args(Format):
        for method in ("POST", "GET"):
            composer = Composer(Form(url="https://shop.example/a?b=1", method=method, format=form))
            try:
                request = composer.request(record)
            except DovecoteError:
                continue
            told = request.lines.replace("\r\n", "")
            assert not {"\r", "\n", "\0"} & {*told, *request.target}


_OPERATORS = (
    SessionsSettings.model_validate({"gap": "1s", "event_time": "t"}),
    SessionsSettings.model_validate({"gap": "1s", "key": ["a"], "aggregate": "list"}),
    PairingSettings.model_validate(
        {"within": "1s", "sides": {"a": {"topic": "orders"}, "b": {"topic": "paid"}}}
    ),
    DelaySettings(),
)


def take_rows(batch: list[Record]) -> None:
    """Read records for the operators of Spark: each is an input or a failed one."""
    for record in batch:
        assert [*unpacked(packed(record.headers))] == [*record.headers]
    rows: list[Sequence[Any]] = [tuple(each) for each in batch]
    for settings in _OPERATORS:
        failed: list[Any] = []
        inputs = list(many_reader(settings)(rows, range(len(rows)), failed))
        assert len(inputs) + len(failed) == len(batch), settings


def take_log(data: bytes) -> None:
    """Decode bytes that any writer may put into the write-ahead log: events, or a ValueError."""
    for form in (b"\1", b"\2"):
        with contextlib.suppress(ValueError):
            decode_events(form + data, 0, 1, {})
    for kind in (b"M", b"I", b"B", b"C", b"R"):
        decoder = Decoder("dovecote", {("outbox", "events")}, LogPosition(0))
        with contextlib.suppress(ValueError, struct.error, IndexError):
            # The server makes these, so only the content of a message is anybody's.
            decoder.take(b"w" + b"\0" * 24 + kind + data)


def take_trace(lines: list[bytes]) -> None:
    """Read a trace: items, or the number of the line that is none."""
    with contextlib.suppress(DovecoteError):
        for item in trace.read(lines):
            if isinstance(item, trace.Traced):
                with contextlib.suppress(DovecoteError):
                    item.record(is_json=False)
                assert item.record().topic


def take_answer(data: bytes) -> None:
    """Read an answer of an endpoint: it ends, and its status is that of its first line."""
    reader = AnswerReader(most=1_000, bodyless=False)
    if not reader.feed(data):
        reader.end("no more", cleanly=True)
    assert reader.failure or 200 <= reader.answer.status <= 999  # what is final


def _table(of: dict[str, str]) -> str:
    pairs = ", ".join(f"{json.dumps(name)} = {text}" for name, text in of.items())
    return f"{{ {pairs} }}"


_MODELS: tuple[type[BaseModel], ...] = (
    *(RelaySettings, ConsumeSettings, DeadSettings, PushSettings, DedupSettings),
    *(SessionsJob, PairingJob, DelayJob),
)
_NAMES = sorted(
    {field.alias or name for model in _MODELS for name, field in model.model_fields.items()}
    | {"bootstrap.servers", "env", "file", "gap", "tiers", "topic", "wait", "port", "type"}
)
_literals = st.recursive(
    st.sampled_from(
        [
            *(
                "1",
                "-1",
                "0.5",
                "nan",
                "inf",
                "true",
                '""',
                '"1s"',
                '"off"',
                '"^a"',
                '"a"',
                '"(((("',
            ),
            *(
                '"postgres://u:p@h/d"',
                '"\\u0000"',
                '"1000000000000d"',
                "2026-11-26",
                "[]",
                '"1e9s"',
            ),
            *(
                '{ env = "NOWHERE" }',
                '{ file = "/nowhere" }',
                '"localhost:9092"',
                "9999999999999999",
            ),
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3).map(_table)
    ),
    max_leaves=5,
)


files = st.dictionaries(st.sampled_from(_NAMES), _literals, max_size=6).map(
    lambda of: "".join(f"{json.dumps(name)} = {text}\n" for name, text in of.items()).encode()
) | st.binary(max_size=60)


def take_file(data: bytes) -> None:
    """Read a settings file of each part: settings, or an error that says what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "settings.toml"
        file.write_bytes(data)
        for model in _MODELS:
            with contextlib.suppress(DovecoteError):
                load(model, file, prefix="DOVECOTE_FUZZED", environ={})


def take_step(data: tuple[str, bytes]) -> None:
    """Read a step of an aggregation in each language."""
    ending, text = data
    with contextlib.suppress(DovecoteError):
        parse(text.decode(errors="replace"), Path(f"step.{ending}"))


_steps = st.tuples(
    st.sampled_from(["conf", "yaml", "json"]),
    st.lists(
        st.sampled_from(
            [
                *(b"a", b"{", b"}", b"[", b"]", b":", b"=", b'"', b"\n", b" ", b"${a}", b"${?B}"),
                *(b"include ", b"#", b"//", b"1", b"010", b"1:00", b"&x", b"*x", b"<<", b'"""'),
                *(b'include package("a")', b"null", b"yes", b"!!python/object:a", b"+=", b"- "),
            ]
        )
        | st.binary(max_size=4),
        max_size=20,
    ).map(b"".join),
)


class Door(NamedTuple):
    """A front door: its inputs, and what takes one of them."""

    inputs: st.SearchStrategy[Any]
    take: Callable[[Any], None]


DOORS = {
    "records": Door(records, take_record),
    "batches": Door(st.lists(records, max_size=6), take_batch),
    "deliveries": Door(records, take_delivery),
    "rows": Door(st.lists(records, max_size=5), take_rows),
    "log": Door(st.binary(max_size=120), take_log),
    "traces": Door(
        st.lists(_bytes | st.sampled_from([b'{"end": true}', b'{"advance_to": 1}']), max_size=4)
        | st.lists(
            st.fixed_dictionaries(
                {
                    "topic": st.text(max_size=3),
                    "partition": st.integers(),
                    "offset": st.integers(),
                },
                optional={
                    "timestamp": st.integers() | st.floats(),
                    "value": st.text(max_size=3) | st.none() | st.floats(),
                    "headers": st.dictionaries(st.text(max_size=3), st.none() | st.integers()),
                },
            ).map(lambda each: json.dumps(each).encode()),
            max_size=3,
        ),
        take_trace,
    ),
    "answers": Door(
        st.lists(
            st.binary(max_size=20)
            | st.sampled_from(
                [
                    *(b"HTTP/1.1 200 OK\r\n", b"\r\n", b"\n", b"0\r\n\r\n", b"ok", b": "),
                    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 2\r\n"),
                    b"HTTP/1.1 100 \r\n\r\n",
                ]
            ),
            max_size=12,
        ).map(b"".join),
        take_answer,
    ),
    "settings": Door(files, take_file),
    "steps": Door(_steps, take_step),
}
