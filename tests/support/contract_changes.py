"""Changes of event classes, each with its verdicts and with records that show them."""

from dataclasses import MISSING, dataclass, field, make_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from dovecote.contracts.rules.change import Verdict

FINE, BREAKS, NOT_JUDGED = Verdict.FINE, Verdict.BREAKS, Verdict.NOT_JUDGED


class State(Enum):
    """States, of which one is missing elsewhere."""

    NEW = "new"
    PAID = "paid"


class LessState(Enum):
    """States without the last one."""

    NEW = "new"


@dataclass
class Line:
    """A line."""

    sku: str


@dataclass
class LineWithPrice:
    """A line with one more field, which is required."""

    sku: str
    price: Decimal


@dataclass
class LineWithNote:
    """A line with one more field, which is optional."""

    sku: str
    note: str = ""


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A reader that refuses what it does not know."""

    id: str


class StrictMore(msgspec.Struct, forbid_unknown_fields=True):
    """The same with one more field."""

    id: str
    note: str = ""


class Open(msgspec.Struct):
    """The same, and it ignores what it does not know."""

    id: str


class Case(NamedTuple):
    """One change of a class of values."""

    words: str
    old: Any
    new: Any
    backward: Verdict
    forward: Verdict
    old_records: list[dict[str, Any]]
    """Some that old writers may write."""
    new_records: list[dict[str, Any]]


def kind(**fields: Any) -> Any:
    """Return a dataclass with these fields, those with a pair of type and default last."""
    given: list[tuple[str, Any, Any]] = []
    for name, each in fields.items():
        of, default = each if isinstance(each, tuple) else (each, MISSING)
        given.append((name, of, field() if default is MISSING else field(default=default)))
    return make_dataclass("Value", given)


A = {"id": "a"}
Positive = Annotated[int, msgspec.Meta(ge=1)]
Small = Annotated[int, msgspec.Meta(ge=1, le=9)]
Short = Annotated[str, msgspec.Meta(max_length=3)]
Coded = Annotated[str, msgspec.Meta(pattern="^[A-Z]+$")]
Recoded = Annotated[str, msgspec.Meta(pattern="^[A-Z]{1,9}$")]

CASES = [
    Case(
        "a field with a default is added",
        kind(id=str),
        kind(id=str, note=(str, "")),
        FINE,
        FINE,
        [A],
        [A, {**A, "note": "n"}],
    ),
    Case(
        "a field without a default is added",
        kind(id=str),
        kind(id=str, note=str),
        BREAKS,
        FINE,
        [A],
        [{**A, "note": "n"}],
    ),
    Case(
        "a field is added, and readers forbid unknown fields",
        Strict,
        StrictMore,
        FINE,
        BREAKS,
        [A],
        [{**A, "note": "n"}],
    ),
    Case(
        "a field with a default is removed",
        kind(id=str, note=(str, "")),
        kind(id=str),
        FINE,
        FINE,
        [A, {**A, "note": "n"}],
        [A],
    ),
    Case(
        "a field without a default is removed",
        kind(id=str, note=str),
        kind(id=str),
        FINE,
        BREAKS,
        [{**A, "note": "n"}],
        [A],
    ),
    Case(
        "a field is removed, and readers forbid unknown fields",
        StrictMore,
        Strict,
        BREAKS,
        FINE,
        [{**A, "note": "n"}],
        [A],
    ),
    Case(
        "a field without a default is renamed",
        kind(id=str, note=str),
        kind(id=str, remark=str),
        BREAKS,
        BREAKS,
        [{**A, "note": "n"}],
        [{**A, "remark": "n"}],
    ),
    Case(
        "a field with a default is renamed",
        kind(id=str, note=(str, "")),
        kind(id=str, remark=(str, "")),
        FINE,
        FINE,
        [{**A, "note": "n"}],
        [{**A, "remark": "n"}],
    ),
    Case(
        "a default is given to a field",
        kind(id=str, n=int),
        kind(id=str, n=(int, 1)),
        FINE,
        BREAKS,
        [{**A, "n": 1}],
        [A, {**A, "n": 1}],
    ),
    Case(
        "a default is taken from a field",
        kind(id=str, n=(int, 1)),
        kind(id=str, n=int),
        BREAKS,
        FINE,
        [A, {**A, "n": 1}],
        [{**A, "n": 1}],
    ),
    Case(
        "a default changes",
        kind(id=str, n=(int, 1)),
        kind(id=str, n=(int, 2)),
        FINE,
        FINE,
        [A, {**A, "n": 1}],
        [A, {**A, "n": 2}],
    ),
    Case(
        "`str` becomes `int`", kind(n=str), kind(n=int), BREAKS, BREAKS, [{"n": "1"}], [{"n": 1}]
    ),
    Case(
        "`int` becomes `float`", kind(n=int), kind(n=float), FINE, BREAKS, [{"n": 1}], [{"n": 1.5}]
    ),
    Case(
        "`float` becomes `int`", kind(n=float), kind(n=int), BREAKS, FINE, [{"n": 1.5}], [{"n": 1}]
    ),
    Case(
        "`Decimal` becomes `str`",
        kind(n=Decimal),
        kind(n=str),
        FINE,
        BREAKS,
        [{"n": "1.50"}],
        [{"n": "much"}],
    ),
    Case(
        "`str` becomes `datetime`",
        kind(n=str),
        kind(n=datetime),
        BREAKS,
        FINE,
        [{"n": "now"}],
        [{"n": "2026-11-26T21:22:00Z"}],
    ),
    Case(
        "an alternative is added: `int` becomes `int` or `str`",
        kind(n=int),
        kind(n=int | str),
        FINE,
        BREAKS,
        [{"n": 1}],
        [{"n": 1}, {"n": "one"}],
    ),
    Case(
        "`None` becomes possible",
        kind(n=int),
        kind(n=int | None),
        FINE,
        BREAKS,
        [{"n": 1}],
        [{"n": None}],
    ),
    Case(
        "`None` is possible no more",
        kind(n=int | None),
        kind(n=int),
        BREAKS,
        FINE,
        [{"n": None}],
        [{"n": 1}],
    ),
    Case(
        "a value of an enumeration is added",
        kind(state=LessState),
        kind(state=State),
        FINE,
        BREAKS,
        [{"state": "new"}],
        [{"state": "paid"}],
    ),
    Case(
        "a value of an enumeration is removed",
        kind(state=State),
        kind(state=LessState),
        BREAKS,
        FINE,
        [{"state": "paid"}],
        [{"state": "new"}],
    ),
    Case(
        "a text becomes an enumeration",
        kind(state=str),
        kind(state=Literal["new", "paid"]),
        BREAKS,
        FINE,
        [{"state": "lost"}],
        [{"state": "new"}],
    ),
    Case(
        "a field without a default is added to an item of a list",
        kind(lines=list[Line]),
        kind(lines=list[LineWithPrice]),
        BREAKS,
        FINE,
        [{"lines": [{"sku": "s"}]}],
        [{"lines": [{"sku": "s", "price": "1.50"}]}],
    ),
    Case(
        "a field with a default is added to a nested object",
        kind(line=Line),
        kind(line=LineWithNote),
        FINE,
        FINE,
        [{"line": {"sku": "s"}}],
        [{"line": {"sku": "s", "note": "n"}}],
    ),
    Case(
        "an object becomes a list of it",
        kind(line=Line),
        kind(line=list[Line]),
        BREAKS,
        BREAKS,
        [{"line": {"sku": "s"}}],
        [{"line": [{"sku": "s"}]}],
    ),
    Case(
        "items of a list change their type",
        kind(n=list[int]),
        kind(n=list[str]),
        BREAKS,
        BREAKS,
        [{"n": [1]}],
        [{"n": ["1"]}],
    ),
    Case(
        "values of a dictionary may be null",
        kind(n=dict[str, int]),
        kind(n=dict[str, int | None]),
        FINE,
        BREAKS,
        [{"n": {"a": 1}}],
        [{"n": {"a": None}}],
    ),
    Case(
        "a bound is added or gets narrower",
        kind(n=Positive),
        kind(n=Small),
        BREAKS,
        FINE,
        [{"n": 100}],
        [{"n": 5}],
    ),
    Case(
        "a bound is removed or gets wider",
        kind(n=Small),
        kind(n=Positive),
        FINE,
        BREAKS,
        [{"n": 5}],
        [{"n": 100}],
    ),
    Case(
        "a text gets a greatest length",
        kind(n=str),
        kind(n=Short),
        BREAKS,
        FINE,
        [{"n": "long one"}],
        [{"n": "s"}],
    ),
    Case(
        "a pattern is added",
        kind(n=str),
        kind(n=Coded),
        BREAKS,
        FINE,
        [{"n": "low"}],
        [{"n": "UP"}],
    ),
    Case("a pattern changes", kind(n=Coded), kind(n=Recoded), NOT_JUDGED, NOT_JUDGED, [], []),
    Case(
        "readers begin to forbid unknown fields",
        Open,
        Strict,
        BREAKS,
        FINE,
        [{**A, "other": 1}],
        [A],
    ),
]
"""Changes of values."""

Words = tuple[str, Verdict, Verdict]

EVENTS: dict[str, Words] = {
    "key": ("the key becomes another field", BREAKS, BREAKS),
    "topic": ("the topic changes", BREAKS, BREAKS),
    "removed": ("a type is removed", BREAKS, FINE),
    "added": ("a type is added to a topic that has others", FINE, BREAKS),
    "new topic": ("a type is added, with a topic of its own", FINE, FINE),
    "version": ("a version is added beside the one before, and fits it", FINE, FINE),
    "versions": ("a third version is added, and old readers have two", FINE, BREAKS),
    "renumbered": ("a version takes the place of the one before, and fits it", FINE, FINE),
    "subject": ("subject, source or dataschema change", FINE, FINE),
}
"""Changes of what is around a value."""


def table() -> str:
    """Return the rows of the table in `docs/contracts.md`."""
    rows = [(case.words, case.backward, case.forward) for case in CASES] + [*EVENTS.values()]
    return "\n".join(f"| {words} | {backward} | {forward} |" for words, backward, forward in rows)
