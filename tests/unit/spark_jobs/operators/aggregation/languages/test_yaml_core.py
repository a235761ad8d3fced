"""YAML means what YAML 1.2 says, and no key is lost."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.loading import parse

FILE = Path("step.yaml")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+7", 7),
        ("-08", -8),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("1:00", "1:00"),
        ("11:05:00", "11:05:00"),
        ("190:20:30.15", "190:20:30.15"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E+2", -150.0),
        ("-.inf", float("-inf")),
        ("1.2.3", "1.2.3"),
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("NULL", None),
        ("2026-11-02", "2026-11-02"),
        ("2026-11-02T10:00:00Z", "2026-11-02T10:00:00Z"),
        ("'010'", "010"),
        ("!!str 010", "010"),
        ("!!int '010'", 10),
        ("=", "="),
    ],
)
def test_a_scalar_is_what_yaml_1_2_says(written: str, meant: object) -> None:
    found = parse(f"a: {written}\nb: [{written}]" if written else "a:\nb: [~]", FILE)
    assert found == {"a": meant, "b": [meant]}
    assert type(found["a"]) is type(meant)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: 2\na: 3",
        "x:\n  - {a: 1, a: 2}",
        'a: 1\n"a": 2',
        "? a\n: 1\n? a\n: 2",
        "base: &b {a: 1, a: 2}\nx: *b",
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(
        BadSettings, match=r"step\.yaml is not YAML: the key 'a' stands twice in"
    ) as it:
        parse(text, FILE)
    assert "line" in str(it.value)
    assert "\n" not in str(it.value)


def test_what_a_merge_brings_may_be_replaced() -> None:
    text = "base: &b {a: 1, c: 1}\nx: &x {<<: *b, a: 2}\ny: {<<: *x, c: 3}\nz: {<<: [*b, *x]}"
    found: dict[str, Any] = parse(text, FILE)
    assert found["x"] == {"a": 2, "c": 1}
    assert found["y"] == {"a": 2, "c": 3}
    assert found["z"] == {"a": 1, "c": 1}


def test_no_object_of_python_is_made() -> None:
    with pytest.raises(BadSettings, match="is not YAML"):
        parse("a: !!python/object/apply:os.getcwd []", FILE)


def test_pyyaml_itself_stays_as_it_was() -> None:
    parse("a: 010", FILE)
    assert yaml.safe_load("a: 010") == {"a": 8}
