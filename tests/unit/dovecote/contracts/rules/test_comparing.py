"""Each change has the verdict that real readers show."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovecote.contracts.rules.change import Change, Compatibility, Verdict
from dovecote.contracts.rules.comparing import compare
from dovecote.contracts.rules.contract import Contract
from dovecote.contracts.rules.sets import compare_all
from dovecote.contracts.schemas import schema_of
from tests.support.contract_changes import (
    BREAKS,
    CASES,
    EVENTS,
    FINE,
    NOT_JUDGED,
    Case,
    table,
)
from tests.support.documents import ROOT

RANKED = [FINE, NOT_JUDGED, BREAKS]


def verdicts(changes: list[Change]) -> tuple[Verdict, Verdict]:
    return (
        max((each.backward for each in changes), key=RANKED.index, default=FINE),
        max((each.forward for each in changes), key=RANKED.index, default=FINE),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_change_has_its_verdict_in_each_direction(case: Case) -> None:
    changes = compare(schema_of(case.old), schema_of(case.new))
    assert changes
    assert verdicts(changes) == (case.backward, case.forward), changes
    assert all(each.why for each in changes if (each.backward, each.forward) != (FINE, FINE))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_readers_that_dovecote_makes_agree_with_the_verdict(case: Case) -> None:
    for verdict, kind, records in (
        (case.backward, case.new, case.old_records),
        (case.forward, case.old, case.new_records),
    ):
        if verdict is NOT_JUDGED:
            continue
        reads = [read(kind, each) for each in records]
        assert all(reads) if verdict is FINE else not all(reads), (kind, records)


def read(kind: Any, record: dict[str, Any]) -> bool:
    try:
        msgspec.json.decode(json.dumps(record), type=kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_schema_is_as_it_was(case: Case) -> None:
    assert compare(schema_of(case.old), schema_of(case.old)) == []


ORDER = Contract("orders", "OrderPlaced", 1, "id", schema={"type": "object"})
PAID = replace(ORDER, type="OrderPaid")
SECOND = replace(ORDER, version=2)
SIDES = {
    "key": ([ORDER], [replace(ORDER, key="order_id")]),
    "topic": ([ORDER], [replace(ORDER, topic="sales")]),
    "removed": ([ORDER, PAID], [ORDER]),
    "added": ([ORDER], [ORDER, PAID]),
    "new topic": ([ORDER], [ORDER, replace(PAID, topic="payments")]),
    "version": ([ORDER], [ORDER, SECOND]),
    "versions": ([ORDER, SECOND], [ORDER, SECOND, replace(ORDER, version=3)]),
    "renumbered": ([ORDER], [SECOND]),
    "subject": ([ORDER], [replace(ORDER, subject="id", source="/x", dataschema="https://x")]),
}


@pytest.mark.parametrize("name", EVENTS)
def test_a_change_around_the_value_has_its_verdict(name: str) -> None:
    old, new = SIDES[name]
    found = compare_all(old, new)
    assert found
    assert verdicts([each.change for each in found]) == EVENTS[name][1:]
    assert compare_all(old, old) == []


def test_a_new_version_is_judged_by_the_readers_that_take_it() -> None:
    def contract(version: int | None, *required: str) -> Contract:
        schema = {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("a", "b")},
            "required": [*required],
        }
        return replace(ORDER, version=version, schema=schema)

    # Old readers have one class, and take the second version with it.
    found = compare_all([contract(1, "a")], [contract(1, "a"), contract(2)])
    assert verdicts([each.change for each in found]) == (FINE, BREAKS)
    # New readers have a class for each version, so that the second one breaks no old record.
    found = compare_all([contract(1)], [contract(1), contract(2, "a")])
    assert verdicts([each.change for each in found]) == (FINE, FINE)
    # Without the class of the old version the new one has to do.
    found = compare_all([contract(1)], [contract(2, "a")])
    assert verdicts([each.change for each in found]) == (BREAKS, FINE)
    assert {each.name for each in found} >= {"orders/OrderPlaced v1 to orders/OrderPlaced v2"}


@pytest.mark.parametrize(
    ("compatibility", "broken"),
    [("backward", 1), ("forward", 1), ("full", 2), ("none", 0)],
)
def test_what_counts_is_a_choice(compatibility: str, broken: int) -> None:
    changes = compare(
        {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        {"properties": {"a": {"type": "number"}, "b": {"type": "integer", "minimum": 1}}},
    )
    wanted = Compatibility(compatibility)
    assert sum(each.breaks(wanted) for each in changes) == broken


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"not": {"type": "null"}}, {"not": {"type": "string"}}),
        ({"type": "object", "minimum": 1, "if": {}}, {"type": "object", "minimum": 1}),
        ({"type": "string"}, {"$ref": "#/$defs/nowhere"}),
        ({"type": "string"}, {"$ref": "#/title", "title": "text"}),
        ({"type": "string"}, {"$ref": "https://elsewhere.example/x"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"type": "string"}),
        ({"type": "number", "minimum": 1}, {"type": "number", "exclusiveMinimum": True}),
        ({"type": "number", "multipleOf": 0.1}, {"type": "number", "multipleOf": 0.2}),
        (
            {"type": "string"},
            {"allOf": [{"type": "string", "format": "a"}, {"format": "b"}]},
        ),
        ({"anyOf": [{}, {"type": "string"}]}, {"type": "string"}),
    ],
)
def test_what_cannot_be_judged_is_said_and_treated_as_a_break(old: Any, new: Any) -> None:
    (change,) = compare(old, new)
    assert (change.backward, change.forward) == (NOT_JUDGED, NOT_JUDGED)
    assert change.breaks(Compatibility.BACKWARD)


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        ({}, {"type": "string"}, BREAKS, FINE),
        ({"type": "string"}, True, FINE, BREAKS),
        ({"type": ["string", "null"]}, {"type": "string"}, BREAKS, FINE),
        ({"const": 1}, {"enum": [1, 2]}, FINE, BREAKS),
        ({"const": True}, {"const": 1}, BREAKS, BREAKS),
        ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 4}, BREAKS, FINE),
        ({"type": "number", "multipleOf": 6}, {"type": "number", "multipleOf": 4}, BREAKS, BREAKS),
        (
            {"type": "number", "minimum": 1},
            {"type": "number", "exclusiveMinimum": 1},
            BREAKS,
            FINE,
        ),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, BREAKS, FINE),
        ({"type": "array", "prefixItems": [{}]}, {"type": "array"}, FINE, FINE),
        ({"allOf": [{"type": "string"}]}, {"type": "string"}, FINE, FINE),
        ({"type": "string", "title": "A"}, {"type": "string", "title": "B"}, FINE, FINE),
        (
            {"properties": {"a": {"type": "string"}}},
            {
                "properties": {"a": {"type": "string"}, "b": {"type": "string", "readOnly": True}},
                "required": ["b"],
            },
            FINE,
            FINE,
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object", "additionalProperties": {"type": "integer"}},
            BREAKS,
            BREAKS,
        ),
    ],
)
def test_forms_that_other_tools_write_are_judged(
    old: Any, new: Any, backward: Verdict, forward: Verdict
) -> None:
    wrapped = [{"properties": {"x": each}} for each in (old, new)]
    changes = compare(*wrapped)
    assert verdicts(changes) == (backward, forward), changes


def test_a_class_that_contains_itself_ends() -> None:
    def tree(kind: str) -> dict[str, Any]:
        node = {
            "type": "object",
            "properties": {
                "left": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                "leaf": {"type": kind},
            },
        }
        return {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    (change,) = compare(tree("string"), tree("integer"))
    assert change.path == "value.leaf"


@pytest.mark.parametrize("more", [[], [{"minProperties": 1}]])
def test_a_class_that_contains_itself_twice_beside_other_keywords_ends(more: list[Any]) -> None:
    def tree(kind: str) -> dict[str, Any]:
        # As pydantic 1 and others write a reference that has a description.
        inner = {"description": "", "allOf": [{"$ref": "#/$defs/Node"}, *more]}
        node = {
            "type": "object",
            "properties": {"leaf": {"type": kind}, "left": inner, "right": {**inner}},
        }
        return {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    assert compare(tree("string"), tree("string")) == []
    (change,) = compare(tree("string"), tree("integer"))
    assert change.path == "value.leaf"


def test_the_path_leads_to_the_change() -> None:
    def schema(kind: str) -> dict[str, Any]:
        item = {"type": "object", "properties": {"price": {"type": kind}}}
        lines = {"type": "array", "items": item}
        return {"type": "object", "properties": {"lines": lines}}

    (change,) = compare(schema("string"), schema("number"))
    assert change.path == "value.lines[].price"


def test_the_table_in_the_docs_is_what_the_comparison_says() -> None:
    text = (ROOT / "docs/contracts.md").read_text(encoding="utf-8")
    assert table() in text
