"""The annotation of a handler decodes values, and refuses what does not fit."""

import json
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypedDict, runtime_checkable
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from dedup.rules.annotations import Typed, typed
from dedup.rules.policies.decode import Misfit
from dedup.rules.record import Record
from outbox import BadSettings, Event, as_event, event
from outbox.envelope import encode


@dataclass
class Line:
    sku: str
    price: Decimal


@event("OrderPlaced", topic="orders", version=2)
@dataclass
class OrderPlaced:
    id: UUID
    at: datetime
    lines: list[Line]
    raw: bytes = b""


@event("OrderPlaced", topic="orders", version=1)
class OldOrder(pydantic.BaseModel):
    number: int


@event("Paid", topic="payments")
class Paid(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    at: datetime
    amount: Decimal


class Struct(msgspec.Struct):
    a: int


@attrs.define
class Parcel:
    weight: float


class Keyed(TypedDict):
    a: int


_PLACED = OrderPlaced(
    UUID(int=7),
    datetime.fromisoformat("2026-11-26T21:22:00Z"),
    [Line("a", Decimal("1.50"))],
    b"\xff",
)
_PAID = Paid(at=_PLACED.at, amount=Decimal(2))


def record(given: Event[Any]) -> Record:
    key, value, headers = encode(given)
    return Record(given.topic, 0, 7, 0, key, value, headers)


def plain(value: object, type_: str = "OrderPlaced", **more: Any) -> Record:
    return record(Event(topic="orders", type=type_, value=value, **more))


def of(handler: Callable[..., Any], **given: Any) -> Typed:
    found = typed(handler, **{"value": "json", **given})
    assert found is not None
    return found


def one(event: Event[OrderPlaced]) -> None: ...
def two(event: Event[OrderPlaced] | Event[Paid], tx: object) -> None: ...
def versions(event: Event[OrderPlaced | OldOrder]) -> None: ...
def rest(event: Event[Paid] | Event) -> None: ...
def empty(event: Event[Paid | None]) -> None: ...
async def awaited(event: "Event[Paid]") -> None: ...
def struct(event: Event[Struct]) -> None: ...
def several(events: list[Event[Paid]]) -> None: ...
def sequence(events: Sequence[Event[Paid]]) -> None: ...


def test_an_object_comes_back_as_it_was_written() -> None:
    read = of(one).event(record(as_event(_PLACED)))
    assert read.value == _PLACED
    assert (read.type, read.topic, read.attribute("dataversion")) == ("OrderPlaced", "orders", "2")
    assert of(two).event(record(as_event(_PAID))).value == _PAID
    assert of(awaited).event(record(as_event(_PAID))).value == _PAID
    for handler in (several, sequence):
        assert of(handler, several=True).event(record(as_event(_PAID))).value == _PAID
    assert of(partial(two, tx=None)).event(record(as_event(_PAID))).value == _PAID


def test_the_version_says_which_class_of_a_type() -> None:
    old = OldOrder(number=1)
    assert of(versions).event(record(as_event(old))).value == old
    assert of(versions).event(record(as_event(_PLACED))).value == _PLACED
    # Written by somebody who says no version: nothing can tell.
    with pytest.raises(Misfit, match="takes no events of type 'OrderPlaced'"):
        of(versions).event(plain({"number": 1}))
    # One class takes what it can.
    assert (
        of(one).event(plain(json.loads(as_event(_PLACED).value_bytes() or b""))).value == _PLACED
    )


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (Struct, {"a": 1}, Struct(1)),
        (Parcel, {"weight": 1.5}, Parcel(1.5)),
        (Keyed, {"a": 1}, {"a": 1}),
        (list[Struct], [{"a": 1}], [Struct(1)]),
        (dict[str, Struct], {"x": {"a": 1}}, None),
    ],
)
def test_other_classes_take_events_of_any_type(kind: Any, value: object, found: object) -> None:
    def handler(event: Any) -> None: ...

    handler.__annotations__["event"] = Event[kind]
    if found is None:
        assert typed(handler, value="json") is None  # plain JSON stays plain
    elif isinstance(found, list):
        assert typed(handler, value="json") is None
    else:
        assert of(handler).event(plain(value)).value == found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": "x"}, "orders/0/7: the value is no OrderPlaced: .*UUID.*value.id"),
        ({"id": str(UUID(int=1)), "at": "2026-01-01T00:00:00Z"}, "missing required field `lines`"),
        (
            {
                "id": str(UUID(int=1)),
                "at": "2026-01-01T00:00:00Z",
                "lines": [{"sku": "a", "price": "1"}, {"sku": 7, "price": "1"}],
            },
            r"got `int` - at `value.lines\[1\].sku`",
        ),
        ([1], "the value is no OrderPlaced"),
        ("text", "the value is no OrderPlaced"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(value: object, said: str) -> None:
    with pytest.raises(Misfit, match=said):
        of(one).event(plain(value))


def test_pydantic_says_its_paths_and_no_values() -> None:
    with pytest.raises(Misfit, match=r"value\.at: .*; value\.amount: ") as caught:
        of(awaited).event(plain({"at": "secret", "amount": [1]}, "Paid"))
    assert "secret" not in str(caught.value)


@dataclass
class Receipt:
    payments: list[Paid]
    order: OldOrder | None = None


def receipts(event: Event[Receipt]) -> None: ...


def test_a_model_within_another_class_comes_back_and_is_refused_with_its_path() -> None:
    written = record(Event(topic="t", type="T", value=Receipt([_PAID], OldOrder(number=1))))
    assert of(receipts).event(written).value == Receipt([_PAID], OldOrder(number=1))
    with pytest.raises(Misfit, match=r"at: .*; amount: .* - at `value.payments\[0\]`") as caught:
        of(receipts).event(plain({"payments": [{"at": "secret", "amount": [1]}]}))
    assert "secret" not in str(caught.value)
    avro = plain({})
    avro.__dict__["event"] = Event(
        topic="t", type="T", value={"payments": [{"at": _PLACED.at, "amount": Decimal(2)}]}
    )
    assert of(receipts, value="avro").event(avro).value == Receipt([_PAID])


def test_a_value_that_nests_too_deeply_does_not_fit() -> None:
    deep = '{"a": 1, "more": ' + "[" * 5_000 + "]" * 5_000 + "}"
    found = plain(deep, content_type="application/json")
    with pytest.raises(Misfit, match="the value is no Struct"):
        of(struct).event(found)


def test_other_types_are_refused_unless_the_handler_takes_them() -> None:
    with pytest.raises(Misfit, match="one takes no events of type 'Paid'; set `filter`, or"):
        of(one).event(record(as_event(_PAID)))
    other = of(rest).event(plain({"a": 1}))
    assert (other.type, other.value) == ("OrderPlaced", {"a": 1})
    assert of(rest).event(record(as_event(_PAID))).value == _PAID


def test_a_tombstone_is_refused_unless_the_handler_takes_it() -> None:
    with pytest.raises(Misfit, match="it is a tombstone"):
        of(one).event(plain(None))
    assert of(empty).event(plain(None)).value is None
    assert of(rest).event(plain(None)).value is None


def test_decoded_values_are_converted() -> None:
    found = of(awaited, value="avro")
    known = plain({"at": _PLACED.at.isoformat(), "amount": "2"}, "Paid")
    known.__dict__["event"] = Event(
        topic="payments", type="Paid", value={"at": _PLACED.at, "amount": Decimal(2)}
    )
    assert found.event(known).value == _PAID


def untyped(event, tx): ...  # type: ignore[no-untyped-def]  # that is the test
def bare(event: Event) -> None: ...
def anything(event: Event[Any]) -> None: ...
def mapping(event: Event[dict[str, Any]]) -> None: ...
def whole(event: Record) -> None: ...


@pytest.mark.parametrize(
    "handler", [untyped, bare, anything, mapping, whole, print, partial(bare)]
)
def test_a_handler_that_names_no_class_gets_values_as_they_are(handler: Any) -> None:
    assert typed(handler, value="json") is None


def unknown(event: "Event[Nowhere]") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # that is the test
def mixed(event: Event[Paid] | int) -> None: ...
def unclear(event: Event[Struct] | Event[Parcel]) -> None: ...
def twice(event: Event[Paid] | Event["SamePaid"]) -> None: ...


@event("Paid", topic="payments")
@dataclass
class SamePaid:
    a: int


@dataclass
class Unfinished:
    a: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # that is the test


class UnfinishedModel(pydantic.BaseModel):
    a: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # as above


@pydantic.dataclasses.dataclass
class UnfinishedRecord:
    a: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # as above


@dataclass
class HoldsUnfinished:
    each: dict[str, list[UnfinishedModel]]
    me: "HoldsUnfinished | None" = None


@dataclass
class HoldsRecord:
    each: UnfinishedRecord


class Other:
    a: int


@dataclass
class HoldsOther:
    a: Other
    me: "HoldsOther"


@dataclass
class MayHoldOther:
    a: int
    b: Other | None
    c: list[Other]
    d: Other | None = None


@runtime_checkable
class Sized(Protocol):
    def __len__(self) -> int: ...


@dataclass
class Open:
    data: object
    number: numbers.Number
    items: Iterable[str]
    sized: Sized


def opened(event: Event[Open]) -> None: ...
def other(event: Event[Other]) -> None: ...
def holds_other(event: Event[HoldsOther | None]) -> None: ...
def may_hold_other(event: Event[MayHoldOther]) -> None: ...
def holds_unfinished(event: Event[HoldsUnfinished]) -> None: ...
def holds_record(event: Event[HoldsRecord]) -> None: ...
def unfinished(event: Event[Unfinished]) -> None: ...
def unfinished_model(event: Event[UnfinishedModel]) -> None: ...


twice.__annotations__["event"] = Event[Paid] | Event[SamePaid]


@pytest.mark.parametrize(
    ("handler", "value", "said"),
    [
        (unknown, "json", "cannot be resolved .*import its classes at run time"),
        (unfinished, "json", "no values of .*Unfinished.* can be decoded: .*'Nowhere'"),
        (unfinished_model, "json", "no values of .*Model.* can be decoded: .*'Nowhere'"),
        (holds_unfinished, "json", "no values of .*Holds.* can be decoded: .*'Nowhere'"),
        (holds_record, "json", "no values of .*Holds.* can be decoded: .*'Nowhere'"),
        (other, "json", "no values of .*Other.* can be decoded: Other is no class that JSON"),
        (holds_other, "json", "no values of .*HoldsOther.*: Other is no class that JSON becomes"),
        (mixed, "json", "name only events"),
        (unclear, "json", "nothing says which events are Struct: decorate it"),
        (twice, "json", "two classes of type 'Paid': give each a `version`"),
        (one, "raw", 'set value = "json"'),
    ],
)
def test_an_annotation_that_cannot_be_followed_is_refused(
    handler: Callable[..., Any], value: str, said: str
) -> None:
    with pytest.raises(BadSettings, match=said):
        typed(handler, value=value)


class Service:
    def handle(self, event: Event[Paid]) -> None: ...
    def __call__(self, event: "Event[Paid]", tx: object) -> None: ...


@pytest.mark.parametrize("handler", [Service().handle, Service()])
def test_methods_and_objects_are_read_as_well(handler: Callable[..., Any]) -> None:
    assert of(handler).event(record(as_event(_PAID))).value == _PAID


def test_a_class_that_json_cannot_become_is_taken_where_no_value_needs_it() -> None:
    found = typed(may_hold_other, value="json")
    assert found is not None
    value = found.event(plain({"a": 1, "b": None, "c": []})).value
    assert value == MayHoldOther(1, None, [])


def test_objects_of_any_class_are_taken_from_other_formats() -> None:
    assert typed(holds_other, value="avro") is not None


def test_a_field_may_be_of_a_class_that_values_of_json_are_of() -> None:
    value = {"data": {"x": 1}, "number": 2, "items": ["a"], "sized": []}
    assert of(opened).event(plain(value)).value == Open({"x": 1}, 2, ["a"], [])  # type: ignore[arg-type]  # a number
