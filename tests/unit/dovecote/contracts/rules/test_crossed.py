"""Where a verdict says `fine`, the readers that Dovecote makes read every record."""

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pydantic
from pydantic import Field

from dovecote.contracts.rules.change import Verdict
from dovecote.contracts.rules.comparing import compare
from dovecote.contracts.schemas import schema_of
from outbox.values import as_json

Meta = msgspec.Meta
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  # a datetime may have no time zone
AWARE = datetime(2026, 1, 1, tzinfo=UTC)


class Two(Enum):
    A = "a"
    B = "b"


class One(Enum):
    A = "a"


class Numbers(IntEnum):
    A = 1
    B = 50


class Plain(msgspec.Struct):
    x: int = 0


class Forbidding(msgspec.Struct, forbid_unknown_fields=True):
    x: int = 0


class Needing(msgspec.Struct):
    x: int


class Other(msgspec.Struct, tag="other"):
    x: int = 0


class Another(msgspec.Struct, tag="another"):
    x: str = ""


class Sparse(msgspec.Struct, omit_defaults=True):
    x: str = ""


class Listed(msgspec.Struct, array_like=True):
    x: int
    y: int = 0


class Named(NamedTuple):
    a: int
    b: str = ""


COMMON: list[tuple[Any, list[Any]]] = [
    (int, [0, 5, -7, 10**15]),
    (float, [1.5, -3.25]),
    (str, ["", "a", "2026-01-01"]),
    (bool, [True]),
    (Two, [Two.A, Two.B]),
    (One, [One.A]),
    (Numbers, [*Numbers]),
    (Literal["a", "b"], ["a", "b"]),
    (Literal["abcd"], ["abcd"]),
    (Literal[1], [1]),
    (Literal["a", 1], ["a", 1]),
    (datetime, [NAIVE, AWARE]),
    (date, [date(2026, 1, 1), date(2999, 1, 1)]),
    (time, [time(1, 2)]),
    (timedelta, [timedelta(1), timedelta(days=-9)]),
    (Decimal, [Decimal("1.5"), Decimal("-100.123")]),
    (UUID, [UUID(int=5)]),
    (int | None, [5, None]),
    (int | str, [5, "a"]),
    (int | float, [5, 5.5]),
    (Any, ["a", None, [1]]),
    (list[int], [[], [1, 2]]),
    (list[str], [["a"]]),
    (tuple[int, int], [(1, 2)]),
    (tuple[int, int, int], [(1, 2, 3)]),
    (tuple[int, ...], [(), (1,)]),
    (dict[str, int], [{}, {"x": 5}, {"y": 5, "kind": 6}]),
    (dict[str, str], [{}, {"x": "a"}]),
    (dict[int, int], [{}, {1: 2}]),
    (dict[str, Any], [{}, {"x": []}]),
    (dict[UUID, int], [{UUID(int=5): 1}]),
]

BY_MSGSPEC: list[tuple[Any, list[Any]]] = [
    *COMMON,
    (Annotated[int, Meta(ge=-5)], [-5, 0]),
    (Annotated[int, Meta(gt=0, lt=9)], [1, 8]),
    (Annotated[float, Meta(ge=3)], [3.0, 3.5]),
    (Annotated[float, Meta(gt=0)], [0.5, 1.0]),
    (Annotated[str, Meta(max_length=3)], ["", "abc"]),
    (Annotated[str, Meta(min_length=2)], ["ab", "abcd"]),
    (Annotated[str, Meta(pattern="^b+$")], ["b"]),
    (Annotated[datetime, Meta(tz=True)], [AWARE]),
    (Annotated[datetime, Meta(tz=False)], [NAIVE]),
    (Annotated[list[int], Meta(max_length=2)], [[], [1, 2]]),
    (Annotated[dict[str, int], Meta(min_length=1)], [{"q": 1}]),
    (dict[Literal["x"], int], [{}, {"x": 1}]),
    (bytes, [b"", b"\xff\0"]),
    (Plain, [Plain(5)]),
    (Forbidding, [Forbidding(5)]),
    (Needing, [Needing(5)]),
    (Other, [Other()]),
    (Other | Another, [Other(), Another()]),
    (Sparse, [Sparse(), Sparse("a")]),
    (Listed, [Listed(1, 2)]),
    (Named, [Named(1)]),
]


class Ignoring(pydantic.BaseModel):
    x: int = 0


class Forbid(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int = 0


class Allow(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: int = 0


class Text(pydantic.BaseModel):
    x: str = ""


class First(pydantic.BaseModel):
    kind: Literal["first"] = "first"
    x: int = 0


class Second(pydantic.BaseModel):
    kind: Literal["second"] = "second"
    x: str = ""


BY_PYDANTIC: list[tuple[Any, list[Any]]] = [
    *COMMON,
    (Annotated[int, Field(le=9)], [9, -100]),
    (Annotated[float, Field(ge=3)], [3.0]),
    (Annotated[str, Field(pattern="^b+$")], ["b"]),
    (Annotated[Decimal, Field(ge=0)], [Decimal(5), Decimal(0)]),
    (Annotated[Decimal, Field(ge=1, lt=100)], [Decimal("50.5")]),
    (Annotated[Decimal, Field(max_digits=3, decimal_places=1)], [Decimal("-10.5")]),
    (pydantic.AwareDatetime, [AWARE]),
    (pydantic.NaiveDatetime, [NAIVE]),
    (pydantic.PastDate, [date(2020, 1, 1)]),
    (Annotated[date, Field(ge=date(2026, 5, 1))], [date(2026, 6, 1)]),
    (Annotated[timedelta, Field(gt=timedelta(5))], [timedelta(6)]),
    (Ignoring, [Ignoring(x=5)]),
    (Forbid, [Forbid(x=5)]),
    (Allow, [Allow.model_validate({"x": 5, "z": 5})]),
    (Text, [Text(x="a")]),
    (First, [First()]),
    (Annotated[First | Second, Field(discriminator="kind")], [First(), Second()]),
]


@dataclass
class Kind:
    """A class with one value, its records, and its reader."""

    of: str
    schema: dict[str, Any]
    records: list[bytes]
    read: Callable[[bytes], object]

    def refused(self, records: list[bytes]) -> list[bytes]:
        return [each for each in records if not self._reads(each)]

    def _reads(self, record: bytes) -> bool:
        try:
            self.read(record)
        except (msgspec.ValidationError, pydantic.ValidationError):
            return False
        return True


def by_msgspec(of: Any, values: list[Any]) -> Kind:
    kind = make_dataclass("Value", [("value", of)])
    records = [as_json(kind(each)) for each in values]
    return Kind(str(of), schema_of(kind), records, msgspec.json.Decoder(kind).decode)


def by_pydantic(of: Any, values: list[Any]) -> Kind:
    kind: Any = pydantic.create_model("Value", value=(of, ...))
    records = [as_json(kind(value=each)) for each in values]
    return Kind(str(of), schema_of(kind), records, kind.model_validate_json)


def wrong(kinds: list[Kind]) -> list[str]:
    """Return what is said to break nobody, and breaks a reader."""
    found = [f"{each.of} reads not its own" for each in kinds if each.refused(each.records)]
    for old, new in product(kinds, kinds):
        changes = compare(old.schema, new.schema)
        for way, is_fine, reader, writer in (
            ("backward", all(each.backward is Verdict.FINE for each in changes), new, old),
            ("forward", all(each.forward is Verdict.FINE for each in changes), old, new),
        ):
            if is_fine and (refused := reader.refused(writer.records)):
                found.append(f"{way}: {old.of} to {new.of}: {refused[0]!r}")
    return found


def test_no_reader_of_msgspec_refuses_what_is_fine() -> None:
    assert wrong([by_msgspec(*each) for each in BY_MSGSPEC]) == []


def test_no_reader_of_pydantic_refuses_what_is_fine() -> None:
    assert wrong([by_pydantic(*each) for each in BY_PYDANTIC]) == []
