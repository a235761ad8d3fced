"""A value has one form in JSON, and a refusal says where in it the fault is."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from outbox import Event, InvalidEvent
from outbox.values import as_json

_AT = datetime(2026, 11, 26, 21, 22, 0, 120_000, tzinfo=UTC)
_ID = UUID("0199f2c6-5cba-7c3e-8a53-1d0f6a2b7f10")


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Price(Enum):
    SMALL = Decimal("1.50")


@dataclass
class Line:
    price: object
    sku: str = "a"


@attrs.define
class Parcel:
    lines: list[Line]


class Struct(msgspec.Struct):
    at: datetime
    raw: bytes


class Model(pydantic.BaseModel):
    order_id: str = pydantic.Field(alias="orderId")
    total: Decimal
    more: Any = None


@pydantic.dataclasses.dataclass
class Checked:
    at: datetime


class Pair(NamedTuple):
    a: int
    b: int


class Typed(TypedDict):
    id: UUID


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (_AT, "2026-11-26T21:22:00.120000Z"),
        (_AT.astimezone(timezone(timedelta(hours=2))), "2026-11-26T23:22:00.120000+02:00"),
        (datetime(2026, 1, 2), "2026-01-02T00:00:00"),  # noqa: DTZ001  # a time on the wall
        (date(2026, 1, 2), "2026-01-02"),
        (time(9, 30), "09:30:00"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4.5), "P1DT2H3M4.5S"),
        (timedelta(seconds=-0.5), "-PT0.5S"),
        (timedelta(days=3), "P3D"),
        (timedelta(0), "PT0S"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+30"), "1E+30"),
        (_ID, str(_ID)),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Price.SMALL, "1.50"),
        (b"\xff\x00", "/wA="),
        (bytearray(b"a"), "YQ=="),
        (memoryview(b"a"), "YQ=="),
        (Line(Decimal("1.50")), {"price": "1.50", "sku": "a"}),
        (Parcel([Line(1)]), {"lines": [{"price": 1, "sku": "a"}]}),
        (Struct(_AT, b"a"), {"at": "2026-11-26T21:22:00.120000Z", "raw": "YQ=="}),
        (Model(orderId="o", total=Decimal(2)), {"orderId": "o", "total": "2", "more": None}),
        (Checked(_AT), {"at": "2026-11-26T21:22:00.120000Z"}),
        (Pair(1, 2), [1, 2]),
        (Typed(id=_ID), {"id": str(_ID)}),
        ({_ID: 1, date(2026, 1, 2): 2, 3: 4, None: 5, True: 6, Price.SMALL: 7}, None),
    ],
)
def test_each_type_has_one_form_wherever_it_stands(value: object, form: object) -> None:
    if form is None:
        found = json.loads(as_json(value))
        assert found == {
            str(_ID): 1, "2026-01-02": 2, "3": 4, "null": 5, "true": 6, "1.50": 7
        }  # fmt: skip
        return
    assert json.loads(as_json(value)) == form
    assert json.loads(as_json({"in": [value]})) == {"in": [form]}
    assert json.loads(as_json(Line(value)))["price"] == form
    event = Event(topic="orders", type="OrderPlaced", value=[value])
    assert json.loads(event.value_bytes() or b"") == [form]
    assert event.media_type() == "application/json"


@pytest.mark.parametrize("moment", [_AT, date(2026, 1, 2), timedelta(hours=-3.5), _ID, Decimal(7)])
def test_readers_of_json_get_the_same_back(moment: Any) -> None:
    text = as_json({"it": moment})
    kind: Any = dict.__class_getitem__((str, type(moment)))
    assert msgspec.json.decode(text, type=kind) == {"it": moment}
    assert pydantic.TypeAdapter(kind).validate_json(text) == {"it": moment}


class Reading(pydantic.BaseModel):
    degrees: float
    more: list[float] = []
    none: str | None = None


class Constant(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
    degrees: float


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Raw(pydantic.BaseModel):
    data: bytes


class Measured(msgspec.Struct):
    degrees: float
    any: Any = None


_SECONDS = timezone(timedelta(minutes=19, seconds=32))


def test_an_offset_with_seconds_is_written_as_another_of_the_same_moment() -> None:
    moment = datetime(1900, 1, 1, tzinfo=_SECONDS)
    text = as_json([moment])
    assert json.loads(text) == ["1899-12-31T23:40:28Z"]
    assert msgspec.json.decode(text, type=list[datetime]) == [moment]


@pytest.mark.parametrize(("how", "written"), [("null", None), ("strings", "NaN")])
def test_a_model_may_say_how_it_writes_what_json_lacks(how: Any, written: object) -> None:
    class Chosen(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(ser_json_inf_nan=how)
        degrees: float
        text: str = "null"

    assert json.loads(as_json(Chosen(degrees=math.nan)))["degrees"] == written


def test_a_null_beside_a_number_is_no_refusal() -> None:
    assert json.loads(as_json(Reading(degrees=1)))["none"] is None
    assert json.loads(as_json(Measured(1.0)))["any"] is None


def endless() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


def unchecked() -> Model:
    fields: dict[str, Any] = {"order_id": "o", "total": object()}
    return Model.model_construct(**fields)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"lines": [1, 2, {"price": object()}]}, r"event value.lines\[2\].price cannot be"),
        ([Line([object()])], r"event value\[0\].price\[0\] cannot be"),
        (Parcel([Line(1), Line({1, 2})]), r"event value.lines\[1\].price .*a set has no order"),
        (
            Model(orderId="o", total=Decimal(1), more={"a b": object()}),
            r"value.more\['a b'\] .*JSON has no object",
        ),
        (Struct("at", object()), "event value.raw cannot"),  # type: ignore[arg-type]  # that is the test
        ({"a": math.nan}, "event value.a cannot be written as JSON: JSON has no nan"),
        (Line(math.inf), "event value.price .*JSON has no inf"),
        (Line(Decimal("NaN")), "event value.price .*JSON has no NaN"),
        ({"a": "\ud800"}, "event value.a .*lone surrogate"),
        ({"\ud800": 1}, "event value .*lone surrogate"),
        ({b"a": 1}, "event value .*a key is of type bytes"),
        ({"a": {(1, 2): 1}}, "value.a .*a key is of type tuple"),
        ({_ID: 1, str(_ID): 2}, "event value .*two keys are written"),
        ({"a": 10**5_000}, "event value.a .*digits"),
        (Line, "event value .*Line is a class; pass an object of it"),
        ({"a": endless()}, "nested too deeply, or contains itself"),
        (unchecked(), "value.total .*JSON has no object"),
        (Reading(degrees=math.nan), "event value.degrees .*JSON has no nan"),
        (Reading(degrees=1, more=[1, -math.inf]), r"value.more\[1\] .*JSON has no -inf"),
        ([Line(Reading(degrees=math.nan))], r"event value\[0\].price.degrees .*no nan"),
        (Measured(1.0, {"a b": [math.inf]}), r"value.any\['a b'\]\[0\] .*JSON has no inf"),
        (Line(Measured(math.nan)), "event value.price.degrees .*JSON has no nan"),
        (Constant(degrees=math.nan), "value.degrees .*JSON has no nan"),
        (Open.model_validate({"x": math.nan}), "value.x .*JSON has no nan"),
        (Line(Raw(data=b"\xff")), "event value.price.data .*invalid utf-8"),
        (time(1, tzinfo=_SECONDS), "event value .*with seconds"),
    ],
)
def test_a_refusal_says_where_in_the_value(value: object, said: str) -> None:
    with pytest.raises(InvalidEvent, match=said) as caught:
        Event(topic="orders", type="OrderPlaced", value=value).value_bytes()
    assert len(str(caught.value)) < 500


def test_a_serialiser_that_raises_is_a_refusal() -> None:
    class Odd(pydantic.BaseModel):
        a: int = 1

        @pydantic.field_serializer("a")
        def _broken(self, _: int) -> int:
            msg = "no such colour"
            raise KeyError(msg)

    with pytest.raises(InvalidEvent, match=r"event value.a .*no such colour"):
        as_json(Odd())


def test_plain_values_are_written_as_before() -> None:
    value = {"ü": [1, 2.5, None, True, "x"], "long": 2**70}
    assert as_json(value) == '{"ü":[1,2.5,null,true,"x"],"long":1180591620717411303424}'.encode()
