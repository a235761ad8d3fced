"""An object of a declared class is enough to write an event."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from outbox import Event, InvalidEvent, Limits, as_event, event
from outbox.envelope import Record, decode, encode
from outbox.writing import statements
from outbox.writing.declared import to_event

_ID = UUID("0199f2c6-5cba-7c3e-8a53-1d0f6a2b7f10")


@event(
    "OrderPlaced",
    topic="orders",
    key="order.id",
    source="/shop",
    subject="order.id",
    version=2,
    dataschema="https://schemas.example/order-placed/2",
)
@dataclass
class OrderPlaced:
    @dataclass
    class Order:
        id: UUID

    order: Order
    total: Decimal


@event("Paid", topic="payments", key=lambda paid: f"{paid.tenant}/{paid.number}")
class Paid(pydantic.BaseModel):
    tenant: str
    number: int


@event("Shipped", topic="shipments")
class Shipped(msgspec.Struct):
    at: datetime


@event("Packed", topic="parcels", key="weight")
@attrs.define
class Packed:
    weight: object


def placed() -> OrderPlaced:
    return OrderPlaced(OrderPlaced.Order(_ID), Decimal("1.50"))


def test_the_declaration_is_the_rest_of_the_event() -> None:
    made = as_event(placed())
    assert (made.topic, made.type, made.source) == ("orders", "OrderPlaced", "/shop")
    assert (made.key, made.subject) == (str(_ID), str(_ID))
    assert (made.attribute("dataversion"), made.attribute("dataschema")) == (
        "2",
        "https://schemas.example/order-placed/2",
    )
    assert made.attribute("sequence") is None
    assert made.value_bytes() == b'{"order":{"id":"%s"},"total":"1.50"}' % str(_ID).encode()
    assert as_event(Paid(tenant="a", number=7)).key == "a/7"
    assert as_event(Shipped(datetime.now(UTC))).key is None


def test_single_fields_may_be_given() -> None:
    made = as_event(placed(), headers=[("tenant", "a"), ("ce_sequence", "7")], key="other", id=_ID)
    assert (made.key, made.id) == ("other", str(_ID))
    assert made.attribute("sequence") == "7"
    key, value, headers = encode(made)
    read = decode(Record("orders", 0, 0, 0, key, value, headers))
    assert (read.attribute("dataversion"), read.attribute("sequence")) == ("2", "7")
    assert ("tenant", b"a") in read.headers


def test_write_takes_objects_and_events_alike() -> None:
    both = [placed(), Event(topic="orders", type="Other", key="k")]
    query, params = statements.append(
        [to_event(each) for each in both], schema="outbox", limits=Limits()
    )
    assert b"append_many" in query
    assert params[0] == ["orders", "orders"]
    assert params[1] == [str(_ID).encode(), b"k"]
    alone = statements.append([to_event(placed())], schema="outbox", limits=Limits())
    assert alone.params[:2] == ["orders", str(_ID).encode()]


class Size(StrEnum):
    BIG = "big"


class Odd(Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("weight", "key"),
    [
        ("a", "a"),
        (b"\xff", b"\xff"),
        (7, "7"),
        (Decimal("1.50"), "1.50"),
        (_ID, str(_ID)),
        (date(2026, 1, 2), "2026-01-02"),
        (Size.BIG, "big"),
        (Odd.ONE, "1"),
        (None, None),
    ],
)
def test_a_key_is_the_text_that_json_would_have(weight: object, key: object) -> None:
    assert as_event(Packed(weight)).key == key


@pytest.mark.parametrize("weight", [1.5, True, [1], {"a": 1}, Packed(1), Decimal("NaN")])
def test_what_is_no_key_is_refused(weight: object) -> None:
    with pytest.raises(InvalidEvent, match=r"Packed\.weight is"):
        as_event(Packed(weight))


class Inherits(Paid):
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": 1}, "or an object of a class with @event.*, not dict"),
        (Inherits(tenant="a", number=1), "Inherits is not declared itself, and Paid is an event"),
        (OrderPlaced, "not type"),
        (None, "not NoneType"),
    ],
)
def test_what_is_not_declared_is_refused(value: object, said: str) -> None:
    with pytest.raises(InvalidEvent, match=said):
        to_event(value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "no topic"}, "is not a Kafka topic name"),
        ({"topic": "a", "key": "order_no"}, "Plain has no field 'order_no', .* key"),
        ({"topic": "a", "subject": "b.c"}, "Plain has no field 'b.c', .* subject"),
        ({"topic": "a", "source": ""}, "source must not be empty"),
        ({"topic": "a", "version": -1}, "must be a number from 0"),
        ({"topic": "a", "version": True}, "must be a number from 0"),
        ({"topic": "a", "version": "2"}, "must be a number from 0, not '2'"),
        ({"topic": "a", "version": 1.5}, "must be a number from 0, not 1.5"),
        ({"topic": "a", "dataschema": ""}, "so it must be a text"),
    ],
)
def test_a_declaration_of_which_no_event_could_be_made_is_refused(
    given: dict[str, Any], said: str
) -> None:
    @dataclass
    class Plain:
        a: int

    with pytest.raises(InvalidEvent, match=said):
        event("Happened", **given)(Plain)


def test_a_missing_member_of_a_member_is_named() -> None:
    @event("Happened", topic="a", key="inner.id")
    @dataclass
    class Outer:
        inner: object

    with pytest.raises(InvalidEvent, match=r"Outer has no inner\.id"):
        as_event(Outer(None))
    assert as_event(Outer({"id": 1})).key == "1"
