"""The AsyncAPI document is whole, and the page escapes what it shows."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from dovecote.contracts.rules.asyncapi import document
from dovecote.contracts.rules.contract import Contract
from dovecote.contracts.rules.page import page
from dovecote.contracts.schemas import schema_of
from tests.support.contract_changes import CASES

OFFICIAL = "DOVECOTE_TEST_ASYNCAPI_SCHEMA"
"""A file with the JSON Schema of AsyncAPI 3.0.0, without `$id`, of its specification."""

CONTRACTS = [
    Contract("orders", f"Type{at}", at, "id", "id", "/shop", "https://x", "a.B", schema_of(kind))
    for at, kind in enumerate(each for case in CASES for each in (case.old, case.new))
] + [Contract("other.topic", "Odd type, with a comma", schema={"type": "object"})]
MADE = document(CONTRACTS, title="Shop", version="1.0.0")
# The specification's own rule for the keys of channels, operations and components.
NAMES = re.compile(r"^[A-Za-z0-9._-]+$")


def references(given: Any) -> list[str]:
    if isinstance(given, list):
        return [found for each in given for found in references(each)]
    if not isinstance(given, dict):
        return []
    own = [given["$ref"]] if isinstance(given.get("$ref"), str) else []
    return own + [found for each in given.values() for found in references(each)]


def test_each_reference_leads_to_a_part_of_the_document() -> None:
    found = references(MADE)
    assert found
    for each in found:
        part: Any = MADE
        for word in each.removeprefix("#/").split("/"):
            part = part[word]
        assert part


def test_the_parts_are_those_that_the_specification_wants() -> None:
    assert [*MADE] == [
        *("asyncapi", "info", "defaultContentType", "channels", "operations", "components"),
    ]
    assert MADE["asyncapi"] == "3.0.0"
    assert {each["address"] for each in MADE["channels"].values()} == {"orders", "other.topic"}
    for operation in MADE["operations"].values():
        assert operation["action"] == "send"
    components = MADE["components"]
    assert len(components["messages"]) == len(CONTRACTS)
    for names in (MADE["channels"], MADE["operations"], *components.values()):
        assert all(map(NAMES.match, names))
    for schema in components["schemas"].values():
        assert not {"$defs", "$schema"} & set(schema)
        Draft7Validator.check_schema(schema)
    message = components["messages"]["orders.Type0.v0"]
    assert message["headers"]["properties"]["ce_type"]["const"] == "Type0"
    assert message["bindings"]["kafka"]["key"]["description"] == "The field id."


def test_fields_may_be_called_as_keywords_are() -> None:
    fields = {name: {"$ref": "#/$defs/A"} for name in ("discriminator", "mapping", "$ref", "enum")}
    schema: dict[str, Any] = {
        "properties": fields,
        "$defs": {"A": {"default": {"discriminator": {}}}},
    }
    made = document([Contract("t", "T", schema=schema)], title="", version="1")
    found = made["components"]["schemas"]
    assert found["t.T"]["properties"] == {
        name: {"$ref": "#/components/schemas/t.T.A"} for name in fields
    }
    assert found["t.T.A"] == schema["$defs"]["A"]


def test_the_specifications_own_schema_takes_it() -> None:
    path = os.environ.get(OFFICIAL)
    if not path:
        pytest.skip(f"{OFFICIAL} names no file")
    official = Draft7Validator(json.loads(Path(path).read_text(encoding="utf-8")))
    assert [each.message for each in official.iter_errors(MADE)] == []
    assert not official.is_valid({**MADE, "nothing": 1})


def test_the_page_shows_text_of_others_as_text() -> None:
    schema = {
        "type": "object",
        "description": "<script>",
        "properties": {"a|b`": {"enum": ["x|`y"], "description": "a | <b>"}},
    }
    shown = page([Contract("t", "<T>", schema=schema)], title="a\n# b", version="1")
    assert "<script>" not in shown
    assert "<T>" not in shown
    assert shown.startswith("# a # b 1\n")
    (row,) = [line for line in shown.splitlines() if line.startswith("| `a")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
