"""Events that do not fit their contract are refused, or warned of, where they are written."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dovecote.contracts.collecting import contracts_of
from dovecote.contracts.files import store
from outbox import BadSettings, Event, InvalidEvent, event
from outbox.contracts import enforce, gate
from outbox.contracts.formats import CHECKED
from outbox.writing.declared import to_event

HIDDEN = "swordfish"


@dataclass
class Line:
    price: Decimal


@event("OrderPlaced", topic="orders", key="order_id", version=2)
@dataclass
class OrderPlaced:
    order_id: str
    at: datetime
    lines: list[Line]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "contracts.json"
    store(path, contracts_of([__name__]))
    yield path
    enforce(path, "off")


def plain(value: object, **more: Any) -> Event[Any]:
    more = {"headers": [("ce_dataversion", "2")], **more}
    return Event(topic="orders", type="OrderPlaced", value=value, **more)


ENTRY = {"topic": "t", "type": "T", "version": None}
GOOD = {"order_id": "o", "at": "2026-11-26T21:22:00Z", "lines": [{"price": "1.50"}]}


def test_an_object_and_a_dictionary_that_fit_are_written(file: Path) -> None:
    enforce(file)
    to_event(OrderPlaced("o", datetime.now(UTC), [Line(Decimal("1.5"))]))
    to_event(OrderPlaced("o", datetime(2026, 1, 2), [Line(Decimal("1E+2"))]))  # noqa: DTZ001  # may be
    assert to_event(plain(GOOD)).value == GOOD
    to_event(plain(GOOD, headers=[]))
    to_event(plain(json.dumps(GOOD), content_type="application/json"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**GOOD, "order_id": 3}, 'value.order_id: it must have type "string"'),
        ({**GOOD, "at": HIDDEN}, 'value.at: it must have format "date-time"'),
        ({**GOOD, "lines": [{"price": HIDDEN}]}, "value.lines[0].price: it must have format"),
        ({"order_id": "o", "at": GOOD["at"]}, "value: 'lines' is a required property"),
        ([], 'value: it must have type "object"'),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_and_without_the_value(
    file: Path, value: object, said: str
) -> None:
    enforce(file)
    with pytest.raises(InvalidEvent) as raised:
        to_event(plain(value))
    assert said in str(raised.value)
    assert str(raised.value).startswith("event orders/OrderPlaced does not fit its contract: ")
    assert HIDDEN not in str(raised.value)


def test_a_version_that_was_not_exported_is_refused(file: Path) -> None:
    enforce(file)
    with pytest.raises(
        InvalidEvent, match=r"contracts\.json has nothing for version 3; export it"
    ):
        to_event(plain(GOOD, headers=[("ce_dataversion", "3")]))


def test_what_has_no_contract_or_is_no_json_is_not_checked(file: Path) -> None:
    enforce(file)
    others: list[Event[Any]] = [
        Event(topic="orders", type="Other", value={}),
        Event(topic="others", type="OrderPlaced", value={}),
        plain(None),
        plain(b"\x00", content_type="application/avro"),
    ]
    for each in others:
        assert to_event(each) is each


def test_a_warning_lets_the_event_through(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    enforce(file, "warn")
    bad = plain({})
    with caplog.at_level(logging.WARNING, "outbox.contracts"):
        assert to_event(bad) is bad
    assert "does not fit its contract" in caplog.text


NOWHERE = {"items": {"$ref": "https://nowhere.invalid/schema"}}
ITSELF = {"$ref": "#"}
BEYOND = {"$ref": "#/x/y", "x": {"y": {"$ref": "https://nowhere.invalid/schema"}}}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({}, b"[" * 100_000 + b"]" * 100_000, "it nests too deeply"),
        ({}, b"9" * 5_000, "it is no JSON"),
        (ITSELF, b"1", "it, or its schema, nests too deeply"),
        (BEYOND, json.dumps(HIDDEN).encode(), "has a schema that cannot check it"),
    ],
)
def test_what_cannot_be_checked_is_warned_of_or_refused_as_what_does_not_fit(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    schema: object,
    value: bytes,
    said: str,
) -> None:
    path = tmp_path / "contracts.json"
    path.write_text(json.dumps({"dovecote": 1, "contracts": [{**ENTRY, "schema": schema}]}))
    odd = Event(topic="t", type="T", value=value, content_type="application/json")
    try:
        enforce(path, "warn")
        assert to_event(odd) is odd
        assert said in caplog.text
        enforce(path)
        with pytest.raises(InvalidEvent, match=said) as raised:
            to_event(odd)
        assert HIDDEN not in str(raised.value)
    finally:
        enforce(path, "off")


def test_a_reference_within_the_schema_or_to_a_meta_schema_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "contracts.json"
    schema = {
        "$defs": {"a": {"$anchor": "here", "type": "string"}},
        "properties": {
            "a": {"$ref": "#here"},
            "b": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
            "$ref": {"const": {"$ref": "no keyword"}},
        },
    }
    path.write_text(json.dumps({"dovecote": 1, "contracts": [{**ENTRY, "schema": schema}]}))
    try:
        enforce(path)
        to_event(Event(topic="t", type="T", value={"a": "", "b": True}))
        with pytest.raises(InvalidEvent, match=r"value\.a: it must have type"):
            to_event(Event(topic="t", type="T", value={"a": 1}))
    finally:
        enforce(path, "off")


def test_nothing_is_checked_until_it_is_asked_for(file: Path) -> None:
    assert gate.check is None
    enforce(file)
    enforce(file, "off")
    assert gate.check is None
    to_event(plain({}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("[", "is no file of contracts"),
        ('{"dovecote": 1, "contracts": [{}]}', "has a contract that cannot be used"),
        (
            json.dumps({"dovecote": 1, "contracts": [{**ENTRY, "schema": {"type": 3}}]}),
            "has a contract that cannot be used",
        ),
        ('{"dovecote": 2, "contracts": []}', "is no file of contracts"),
        ("[" * 100_000, "is no file of contracts"),
        (
            json.dumps({"dovecote": 1, "contracts": [{**ENTRY, "schema": NOWHERE}]}),
            r"has a contract whose \$ref 'https://nowhere.invalid/schema' leads nowhere; write it",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "contracts.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadSettings, match=said):
        enforce(path)
    with pytest.raises(BadSettings, match="mode 'loud' is none of off, warn, refuse"):
        enforce(path, "loud")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", ["2026-11-26T21:22:00Z", "2026-11-26T21:22:00.123456"], ["2026-11-26", "x"]),
        ("date", ["2026-11-26"], ["26.11.2026"]),
        ("time", ["21:22:00", "00:00:00", "21:22:00+01:00"], ["2122", "x"]),
        ("duration", ["P1DT2H", "-PT0.5S", "PT0S"], ["P", "1D", "PT"]),
        ("uuid", ["0199f2c6-5cba-7c3e-8a53-1d0f6a2b7f10"], ["x"]),
        ("decimal", ["1.50", "-1E+2"], ["NaN", "x"]),
    ],
)
def test_formats_are_those_that_values_are_written_in(
    name: str, good: list[str], bad: list[str]
) -> None:
    assert all(CHECKED[name](each) for each in good)
    for each in bad:
        with suppress(ValueError):
            assert not CHECKED[name](each), each
    assert CHECKED[name](3)
