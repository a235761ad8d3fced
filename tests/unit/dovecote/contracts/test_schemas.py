"""The schema of a class is that of what is written."""

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag
from typing import Any, Literal
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from dovecote.contracts.rules.comparing import compare
from dovecote.contracts.schemas import schema_of
from outbox import BadSettings
from outbox.contracts.formats import CHECKED
from outbox.values import as_json

_ID = UUID("0199f2c6-5cba-7c3e-8a53-1d0f6a2b7f10")
NOW = datetime(2026, 11, 26, 21, 22, tzinfo=UTC)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(IntFlag):
    READ = 1
    WRITE = 2


class Sole(Flag):
    ONE = 1


@dataclass
class Rights:
    mode: Mode
    more: list[Sole]
    by_mode: dict[Mode, Mode | None]
    by_level: dict[Level, int]


class RightsModel(pydantic.BaseModel):
    mode: Mode
    more: list[Sole]
    by_mode: dict[Mode, Mode | None]
    by_level: dict[Level, int]


class Address(pydantic.BaseModel):
    city: str = pydantic.Field(alias="cityName")
    since: date | None = None


@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)


@attrs.define
class Weight:
    grams: Decimal
    at: datetime | None = None


class Tag(msgspec.Struct, rename="camel", omit_defaults=True):
    tag_name: str
    seen_at: datetime | None = None
    extra: int = 0


@dataclass
class Everything:
    id: UUID
    at: datetime
    day: date
    clock: time
    took: timedelta
    amount: Decimal
    raw: bytes
    color: Color
    level: Level
    kind: Literal["a", "b"]
    node: Node
    weight: Weight
    tag: Tag
    address: Address
    times: list[datetime]
    by_day: dict[str, date]
    pair: tuple[int, datetime]
    maybe: datetime | int | None = None
    many: list[Weight] | None = None


EVERYTHING = Everything(
    _ID,
    NOW,
    date(2026, 11, 26),
    time(21, 22, 0, 5),
    timedelta(days=-1, seconds=3),
    Decimal("1.50"),
    b"\x00\xff",
    Color.RED,
    Level.HIGH,
    "a",
    Node("a", [Node("b")]),
    Weight(Decimal(1), NOW),
    Tag("t", NOW, 1),
    Address(cityName="Bern"),
    [NOW, datetime(2026, 1, 2)],  # noqa: DTZ001  # a datetime may have no time zone
    {"a": date(2026, 1, 2)},
    (1, NOW),
    NOW,
    [Weight(Decimal(2))],
)


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    order_id: UUID = pydantic.Field(alias="orderId")
    at: datetime
    price: Decimal
    took: timedelta
    color: Color
    count: int = pydantic.Field(default=1, ge=1)
    address: Address | None = None

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def double(self) -> int:
        return 2 * self.count


ORDER = Order(
    orderId=_ID, at=NOW, price=Decimal("1.50"), took=timedelta(hours=1), color=Color.BLUE
)


def validator(kind: Any) -> Draft202012Validator:
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    checker = FormatChecker(formats=())
    for name, check in CHECKED.items():
        checker.checks(name, ValueError)(check)
    return Draft202012Validator(schema, format_checker=checker)


BOTH = Mode.READ | Mode.WRITE
RIGHTS = Rights(BOTH, [Sole(0)], {BOTH: BOTH}, {Level.LOW: 1})
RIGHTS_MODEL = RightsModel(
    mode=BOTH, more=[Sole(0)], by_mode={BOTH: BOTH}, by_level={Level.LOW: 1}
)


@pytest.mark.parametrize("value", [RIGHTS, RIGHTS_MODEL])
def test_a_sum_of_flags_and_numbers_as_keys_are_valid(value: object) -> None:
    found = json.loads(as_json(value))
    assert [*validator(type(value)).iter_errors(found)] == []
    for wrong in ({"mode": "READ"}, {"by_mode": {"READ": None}}, {"by_level": {"3": 1}}):
        assert not validator(type(value)).is_valid({**found, **wrong})


@pytest.mark.parametrize(
    "value", [EVERYTHING, ORDER, EVERYTHING.node, EVERYTHING.tag, Tag("t"), EVERYTHING.weight]
)
def test_what_is_written_is_valid(value: object) -> None:
    found = json.loads(as_json(value))
    assert [*validator(type(value)).iter_errors(found)] == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("at", each) for each in ("yesterday", 3, None)),
        *(("clock", each) for each in ("noon", 3)),
        ("times", ["x"]),
        ("by_day", {"a": "x"}),
        ("pair", [1, "x"]),
        ("maybe", "x"),
        ("took", "1 day"),
        ("amount", 1.5),
        ("color", "green"),
        ("level", 3),
        ("kind", "c"),
        ("node", {"name": "a", "children": [{}]}),
        ("weight", {"grams": "1", "at": "x"}),
        ("tag", {"tagName": "a", "seenAt": "x"}),
        ("address", {"city": "Bern"}),
        ("many", [{"grams": "x"}]),
    ],
)
def test_what_no_such_class_writes_is_not_valid(name: str, wrong: object) -> None:
    found = json.loads(as_json(EVERYTHING))
    assert not validator(Everything).is_valid({**found, name: wrong})


def test_a_default_is_optional_and_a_computed_field_is_needed_by_no_reader() -> None:
    schema = schema_of(Order)
    assert "count" not in schema["required"]
    assert "orderId" in schema["required"]
    without = json.loads(json.dumps(schema))
    del without["properties"]["double"]
    without["required"].remove("double")
    assert {each.backward for each in compare(without, schema)} == {"fine"}


def test_a_text_that_becomes_a_time_is_a_change() -> None:
    @dataclass
    class Timed:
        at: datetime | None

    @dataclass
    class Texted:
        at: str | None

    (change,) = compare(schema_of(Texted), schema_of(Timed))
    assert (change.path, change.backward, change.forward) == ("value.at", "breaks", "fine")


def test_the_same_class_in_another_library_is_the_same_contract() -> None:
    @dataclass
    class Plain:
        id: UUID
        price: Decimal
        at: datetime
        note: str | None = None

    class Modelled(pydantic.BaseModel):
        id: UUID
        price: Decimal
        at: datetime
        note: str | None = None

    assert compare(schema_of(Plain), schema_of(Modelled)) == []


def test_a_class_without_fields_or_with_what_json_lacks_is_refused() -> None:
    class Bare:
        pass

    @dataclass
    class Odd:
        what: complex

    @dataclass
    class Lost:
        what: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # on purpose

    for kind in (Bare, Odd, Lost):
        with pytest.raises(BadSettings, match=rf"{kind.__name__} has no JSON Schema: "):
            schema_of(kind)
