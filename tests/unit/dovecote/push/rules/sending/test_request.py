"""The request that an endpoint gets for a record."""

import asyncio
import base64
import json
import tracemalloc
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dedup.rules.identity import Identity
from dovecote.push.rules.sending.headers import encoded
from dovecote.push.rules.sending.request import (
    Composer,
    Form,
    Metadata,
    Request,
    Unsendable,
    webhook_id,
)
from outbox import Event
from outbox.envelope import Pair, Record, encode

URL = "https://shop.example/hook?token=1"
E, E1 = Identity("/shop", "e"), Identity("/shop", "e1")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(value: bytes | None = b'{"n": 1}', *headers: Pair, key: bytes | None = b"k") -> Record:
    return Record("orders", 3, 42, 1_700_000_000_000, key, value, headers)


def of(event: Event) -> Record:
    key, value, headers = encode(event)
    return Record("orders", 3, 42, 1_700_000_000_000, key, value, headers)


class Item(BaseModel):
    """As in FastAPI's tutorial, "Request Body"."""

    name: str
    description: str | None = None
    price: float
    tax: float | None = None


EVENT = Event(
    topic="orders",
    key="k",
    type="shop.Placed",
    source="/shop",
    id="e1",
    value={"n": 1},
    traceparent=TRACE,
)


def headers_of(request: Request) -> list[tuple[str, str]]:
    """Return the headers that a request sends for its record."""
    pairs = [line.partition(": ") for line in request.lines.split("\r\n")[:-1]]
    return [(name, value) for name, _, value in pairs]


def test_the_value_is_the_body_as_it_is() -> None:
    request = Composer(Form(url=URL)).request(record(b"\x00\xff"), E1)
    assert request.body == b"\x00\xff"
    assert request.target == "/hook?token=1"
    assert dict(headers_of(request))["Content-Type"] == "text/plain; charset=UTF-8"


def test_what_the_record_says_of_its_type_is_said_unless_the_subscription_says_another() -> None:
    typed = record(b"{}", ("content-type", b"application/json"))
    assert dict(headers_of(Composer(Form(url=URL)).request(typed, E)))["Content-Type"] == (
        "application/json"
    )
    own = Form(url=URL, headers={"content-type": "application/x-own"})
    assert "Content-Type" not in dict(headers_of(Composer(own).request(typed, E)))
    assert ("content-type", "application/x-own") in own.standing()


JSON = "application/json"
TEXT = "text/plain; charset=UTF-8"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"name": "Foo", "price": 42.0}', JSON),
        (b" [1]\n", JSON),
        (b'"a"', JSON),
        (b"1" * 10_000, JSON),
        (b"plain", TEXT),
        (b"{'a': 1}", TEXT),
        (b'{"a": NaN}', TEXT),
        (b"\xff", TEXT),
        (b"[" * 100_000, TEXT),
        (b"", TEXT),
        (None, TEXT),
    ],
)
def test_a_value_that_is_json_is_sent_as_json_although_its_record_has_no_type(
    value: bytes | None, kind: str
) -> None:
    request = Composer(Form(url=URL)).request(record(value), E1)
    assert dict(headers_of(request))["Content-Type"] == kind
    assert request.body == (value or b"")


def test_json_is_sent_as_text_where_the_subscription_says_so() -> None:
    for form in (Form(url=URL, detect_json=False), Form(url=URL, charset="UTF-16")):
        told = dict(headers_of(Composer(form).request(record(b"{}"), E1)))["Content-Type"]
        assert told == f"text/plain; charset={form.charset}"


def test_a_binary_event_of_json_has_its_type_too() -> None:
    composer = Composer(Form(url=URL, format="cloudevents_binary"))
    assert dict(headers_of(composer.request(record(b"{}"), E1)))["Content-Type"] == JSON
    assert "Content-Type" not in dict(headers_of(composer.request(record(b"x"), E1)))


def test_the_handler_of_fastapis_tutorial_takes_json_without_a_type() -> None:
    app = FastAPI()

    @app.post("/items/")
    async def create_item(item: Item) -> Item:
        return item

    composer = Composer(Form(url="https://shop.example/items/"))
    request = composer.request(record(b'{"name": "Foo", "price": 42.0}'), E1)
    headers = [(name.lower().encode(), text.encode()) for name, text in headers_of(request)]
    told: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": request.body}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    scope = {"type": "http", "method": "POST", "path": request.target, "headers": headers}
    asyncio.run(app({**scope, "query_string": b""}, receive, send))
    assert (told[0]["status"], json.loads(told[1]["body"])["name"]) == (200, "Foo")


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_a_method_without_body_has_the_value_as_a_parameter(method: str) -> None:
    form = Form(url=URL, method=method, query_param_key="mes sage")
    request = Composer(form).request(record('{"a": "ä&="}'.encode()), E1)
    assert request.body == b""
    assert parse_qs(urlsplit(request.target).query) == {
        "token": ["1"],
        "mes sage": ['{"a": "ä&="}'],
    }
    assert "Content-Type" not in dict(headers_of(request))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_other_methods_have_a_body(method: str) -> None:
    assert Composer(Form(url=URL, method=method)).request(record(b"x"), E).body == b"x"


def test_the_metadata_of_the_original_is_told_when_asked_for() -> None:
    form = Form(url=URL, metadata=Metadata("main", "id_group"))
    told = {**dict(form.standing()), **dict(headers_of(Composer(form).request(record(), E)))}
    assert (
        told
        | {
            "QOH-Broker": "main",
            "QOH-Consumer": "id_group",
            "QOH-Topic": "orders",
            "QOH-Partition": "3",
            "QOH-Message-Key": "k",
            "QOH-Message-Number": "42",
            "User-Agent": "Queue-Over-Http",
        }
        == told
    )
    without = Composer(form).request(record(key=None), E)
    assert "QOH-Message-Key" not in dict(headers_of(without))


def test_binary_cloudevents_have_attributes_as_headers_and_no_datacontenttype() -> None:
    request = Composer(Form(url=URL, format="cloudevents_binary")).request(of(EVENT), E1)
    told = dict(headers_of(request))
    assert told["ce-id"] == "e1"
    assert told["ce-type"] == "shop.Placed"
    assert told["ce-source"] == "/shop"
    assert told["ce-specversion"] == "1.0"
    assert told["ce-time"].endswith("Z")
    assert told["Content-Type"] == "application/json"
    assert told["traceparent"] == TRACE
    assert not any(name.startswith("ce-datacontenttype") for name in told)
    assert json.loads(request.body) == {"n": 1}


def test_structured_cloudevents_are_one_document() -> None:
    request = Composer(Form(url=URL, format="cloudevents_structured")).request(of(EVENT), E1)
    document = json.loads(request.body)
    assert dict(headers_of(request))["Content-Type"].startswith("application/cloudevents+json")
    assert document["data"] == {"n": 1}
    assert (document["id"], document["datacontenttype"]) == ("e1", "application/json")


@pytest.mark.parametrize(
    ("value", "kind", "member", "data"),
    [
        (b"\xff\x00", None, "data_base64", base64.b64encode(b"\xff\x00").decode()),
        (b"not json", b"application/json", "data_base64", base64.b64encode(b"not json").decode()),
        (b"NaN", b"application/json", "data_base64", base64.b64encode(b"NaN").decode()),
        (b'a "text"', b"text/plain", "data", 'a "text"'),
        (b"[1]", b"application/vnd.x+json; charset=utf-8", "data", [1]),
    ],
)
def test_data_that_is_no_json_is_text_or_base64(
    value: bytes, kind: bytes | None, member: str, data: object
) -> None:
    headers = [] if kind is None else [("content-type", kind)]
    composer = Composer(Form(url=URL, format="cloudevents_structured"))
    document = json.loads(composer.request(record(value, *headers), E).body)
    assert document[member] == data
    assert ("data" in document) != ("data_base64" in document)


def test_a_tombstone_has_no_data_and_an_empty_body() -> None:
    composer = Composer(Form(url=URL, format="cloudevents_structured"))
    document = json.loads(composer.request(record(None), E).body)
    assert "data" not in document
    assert "data_base64" not in document
    assert Composer(Form(url=URL)).request(record(None), E).body == b""


def test_a_foreign_record_is_an_event_all_the_same() -> None:
    composer = Composer(Form(url=URL, format="cloudevents_binary"))
    told = dict(headers_of(composer.request(record(b"x"), Identity("orders", "orders/3/42"))))
    assert (told["ce-id"], told["ce-type"]) == ("orders/3/42", "kafka.record")
    assert told["ce-time"] == "2023-11-14T22:13:20.000000Z"


def test_long_attributes_are_not_remembered() -> None:
    composer = Composer(Form(url=URL, format="cloudevents_binary"))
    for number in range(200):
        subject = b"%06d" % number * 2_000
        told = headers_of(composer.request(record(b"[1]", ("ce_subject", subject)), E))
        assert dict(told)["ce-subject"].encode() == subject
        if number == 99:
            tracemalloc.start()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1_000_000


def test_a_trace_goes_on_with_what_others_keep_in_it() -> None:
    headers = (("traceparent", TRACE.encode()), ("tracestate", b"a=1,b=2"), ("other", b"x"))
    told = dict(headers_of(Composer(Form(url=URL)).request(record(b"[1]", *headers), E)))
    assert (told["traceparent"], told["tracestate"]) == (TRACE, "a=1,b=2")
    assert "other" not in told


def test_no_header_of_a_record_takes_the_place_of_its_value() -> None:
    composer = Composer(Form(url=URL, format="cloudevents_structured"))
    headers = (("ce_id", b"e"), ("ce_type", b"t"), ("ce_source", b"s"), ("ce_data", b"forged"))
    body = composer.request(record(b"[1]", *headers), E).body
    assert b"forged" not in body
    assert json.loads(body)["data"] == [1]


def test_text_goes_out_in_the_charset_that_is_asked_for_or_not_at_all() -> None:
    composer = Composer(Form(url=URL, charset="iso-8859-1"))
    assert composer.request(record("ä".encode()), E).body == b"\xe4"
    with pytest.raises(Unsendable, match="iso-8859-1"):
        composer.request(record("€".encode()), E)


@given(st.text(max_size=30), st.text(max_size=30), st.binary(max_size=20))
def test_nothing_in_a_record_can_begin_another_header(id_: str, type_: str, key: bytes) -> None:
    try:
        header = ("ce_type", type_.encode())
    except UnicodeEncodeError:
        return
    form = Form(
        url=URL, format="cloudevents_binary", metadata=Metadata("b", "c"), query_param_key=id_
    )
    try:
        request = Composer(form).request(record(b"x", header, key=key), Identity("/s", id_))
    except UnicodeEncodeError:
        return  # an id with half a character is no text
    for name, value in [*headers_of(request), ("webhook-id", request.id)]:
        assert (name + value).isascii()
        assert (name + value).isprintable()
    assert "." not in request.id


def test_header_values_are_encoded_as_cloudevents_says() -> None:
    assert encoded("Euro € 😀 %") == "Euro%20%E2%82%AC%20%F0%9F%98%80%20%25"
    assert encoded('a"b') == "a%22b"
    assert encoded("/shop?x=1&y=~") == "/shop?x=1&y=~"
    assert encoded("orders.v1/0/7") == "orders.v1/0/7"


def test_events_of_two_sources_with_one_id_have_two_webhook_ids() -> None:
    """Names of the parts are told apart, and a dot would end the id in the signed text."""
    known = [
        Identity("/studio", "7"),
        Identity("/lms", "7"),
        Identity("lms", "7@/"),
        Identity("@lms", "7"),
        Identity("%40lms", "7"),
        Identity("orders.v1", "7"),
    ]
    made = [webhook_id(each) for each in known]
    assert len(set(made)) == len(known)
    assert made[:2] == ["7@/studio", "7@/lms"]
    assert made[-1] == "7@orders%2Ev1"
    assert webhook_id(Identity("/lms", "7", 3)) == "7@/lms"


@pytest.mark.parametrize(
    ("url", "origin", "host"),
    [
        ("https://a.example/x", (True, "a.example", 443), "a.example"),
        ("http://a.example:8080", (False, "a.example", 8080), "a.example:8080"),
        ("http://[::1]:81/", (False, "::1", 81), "[::1]:81"),
        ("https://bücher.example", (True, "xn--bcher-kva.example", 443), "xn--bcher-kva.example"),
    ],
)
def test_the_origin_is_that_of_the_url(url: str, origin: tuple[bool, str, int], host: str) -> None:
    found = Form(url=url).origin()
    assert (found.tls, found.host, found.port) == origin
    assert found.host_header == host


def test_other_urls_are_refused() -> None:
    with pytest.raises(ValueError, match="http"):
        Form(url="ftp://a.example/x").origin()


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([(f"ce_x{n}", b"v") for n in range(100)], "make 10[0-9] headers, and at most 100 are"),
        ([("ce_x", b"v" * 20_000)], "bytes of headers, and at most 16,384 are sent"),
        ([("ce_id", b"i" * 20_000)], "bytes of headers, and at most 16,384 are sent"),
        ([("ce_x", "\u00e4".encode() * 3_000)], "make 18,[0-9]+ bytes of headers"),
    ],
)
def test_a_head_that_servers_refuse_is_never_sent(headers: list[Pair], says: str) -> None:
    composer = Composer(Form(url=URL, format="cloudevents_binary"))
    with pytest.raises(Unsendable, match=says):
        composer.request(record(b"1", *headers))
    if headers[0][0] != "ce_id":
        structured = Composer(Form(url=URL, format="cloudevents_structured"))
        assert structured.request(record(b"1", *headers)).body
