import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies.starlark import FilterFailed, compile_expression
from outbox.errors import BadSettings
from outbox.event import Event
from tests.support.waiting import patient

ORDER = {
    "amount": 12,
    "customer": {"name": "Zoë", "address": {"city": "Ghent"}},
    "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 3}],
    "note": None,
    "items": 4,
    "get": "a field, not a method",
}


def event(value: object = ORDER, **more: Any) -> Event:
    return Event(
        topic="orders",
        type="OrderPlaced",
        time=datetime(2026, 1, 2, tzinfo=UTC),
        value=value,
        **more,
    )


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 0",
        'value["amount"] > 0',
        'value.customer.address.city == "Ghent"',
        'value.customer["address"].city == "Ghent"',
        'value.customer.name == "Zoë"',
        'value.customer.name.startswith("Z")',
        "value.lines[1].n == 3",
        "any([line.n > 2 for line in value.lines])",
        'len([line for line in value.lines if line.sku in ("a", "c")]) == 1',
        "value.note == None",
        '"discount" not in value and "amount" in value',
        'value.get("discount", 0) == 0',
        "value.items == 4",
        'value.get == "a field, not a method"',
        "sorted([line.n for line in value.lines], key=lambda n: -n)[0] == 3",
        '[value["n"] for value in value.lines] == [1, 3]',
        "len(value) == 6 and value.amount == 12",
        'type(value) == "dict"',
        "value.amount if value.amount > 10 else False",
        "True",
        "value.amount > 0 and\n  value.amount < 20  # both",
        "value.amount == 12.0 and value.amount != True",
    ],
)  # fmt: skip
def test_an_expression_reads_nested_fields_by_name_or_by_subscript(text: str) -> None:
    assert compile_expression(text)(event()) is True
    assert compile_expression(f"not ({text}\n)")(event()) is False


def test_an_expression_that_does_not_come_to_a_field_does_not_miss_it() -> None:
    passes = compile_expression("value.amount > 100 and value.discount > 0")
    assert passes(event()) is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("value.discount > 0", 'Key `"discount"` was not found'),
        ('value.get("discount") > 0', "not supported for types `NoneType` and `int`"),
        ('value.amount > "x"', "not supported for types `int` and `string`"),
        ("value.note.length > 0", r"\[\]` not supported for types `NoneType`"),
        ('headers["region"] == "eu"', 'Key `"region"` was not found'),
        ('fail("not for us")', "not for us"),
        ("value.amount // 0", "[Dd]ivision by zero"),
    ],
)
def test_what_an_expression_cannot_decide_is_an_error_that_names_it(text: str, says: str) -> None:
    with pytest.raises(FilterFailed, match=says) as caught:
        compile_expression(text)(event())
    assert str(caught.value).startswith(f"filter {text!r} failed: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, "text", [1]])
def test_a_field_of_what_is_no_object_is_an_error(value: object) -> None:
    with pytest.raises(FilterFailed):
        compile_expression("value.amount > 0")(event(value))


def test_the_key_is_the_records_key() -> None:
    passes = compile_expression('key != None and key.startswith("k")')
    assert passes(event(key="k1")) is True
    assert passes(event(key=b"k1")) is True
    assert passes(event(key=None)) is False


def test_a_header_is_its_first_value_as_text() -> None:
    tagged = event(headers=[("tag", "red"), ("tag", b"blue"), ("none", None), ("bytes", b"a\xff")])
    passes = compile_expression(
        'headers["tag"] == "red" and headers["none"] == None and "x" not in headers'
        ' and headers["bytes"] == "a\\ufffd"'
    )
    assert passes(tagged) is True
    assert compile_expression('"tag" in headers.keys()')(tagged) is True


def test_the_envelopes_attributes_are_headers_too() -> None:
    passes = compile_expression(
        'headers["ce_type"] == "OrderPlaced" and headers["ce_source"] == "/shop"'
        ' and headers["ce_time"].startswith("2026-01-02") and headers["ce_id"] == "e1"'
        ' and headers["content-type"] == "application/json" and "ce_subject" not in headers'
        ' and headers["ce_specversion"] == "1.0" and "traceparent" not in headers'
    )
    assert passes(event(id="e1", source="/shop")) is True
    assert compile_expression("len(headers) == 6")(event()) is True


def test_raw_values_are_seen_as_text_and_bytes_are_an_error() -> None:
    passes = compile_expression('value.startswith("GET ")')
    assert passes(event(b"GET /orders")) is True
    with pytest.raises(FilterFailed, match="the value is not UTF-8 text"):
        passes(event(b"\xff"))
    with pytest.raises(FilterFailed, match="the key is not UTF-8 text"):
        compile_expression('key == "k"')(event(key=b"\xff"))
    assert compile_expression('headers["ce_type"] == "OrderPlaced"')(event(b"\xff")) is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("value.amount > 0,", "ends in a comma"),
        ("value.amount >", "Parse error"),
        ("amount > 0", "Variable `amount` not found"),
        ("x = 1", "Parse error"),
        ("value.a; value.b", "Parse error"),
        ("import os", "reserved keyword `import`"),
        ("value is None", "reserved keyword `is`"),
        ("1 < value.amount < 3", "Parse error"),
        ('f"{value}"', "f-strings"),
        ('open("x")', "Variable `open` not found"),
        ('load("x", "y")', "not found|Parse error"),
        ('hasattr(value, "amount")', '`"name" in value`'),
        ('getattr(value, "amount", 0)', "`value.get"),
        ("not " * 3000 + "1", "not a Starlark expression"),
        ("-" * 50_000 + "1", "not a Starlark expression"),
    ],
)
def test_what_is_no_expression_is_refused_when_it_is_loaded(text: str, says: str) -> None:
    with pytest.raises(BadSettings, match=says) as caught:
        compile_expression(text)
    assert str(caught.value).startswith(f"filter {text!r}")


@pytest.mark.parametrize(
    "text",
    [
        "[n for n in range(1000000000) if n < 0]",
        "(lambda f: f(f))(lambda f: f(f))",
        "(lambda f, n: f(f, n))(lambda f, n: n == 0 or f(f, n - 1) and f(f, n - 1), 40)",
    ],
)
def test_an_expression_that_does_not_end_is_ended(text: str) -> None:
    passes = compile_expression(text)
    for _ in range(2):  # and the next event gets the whole allowance again
        with pytest.raises(FilterFailed):
            passes(event())


def test_a_panic_inside_starlark_is_one_events_failure() -> None:
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from dedup.rules.policies.starlark import FilterFailed, compile_expression\n"
        "from outbox.event import Event\n"
        'passes = compile_expression(\'value.n == 1 or ("x" * value.n).upper() == ""\')\n'
        "try: passes(Event(topic='t', type='T', value={'n': 1 << 29}))\n"
        "except FilterFailed as error: print(error)\n"
        "print(passes(Event(topic='t', type='T', value={'n': 1})))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(60),
    )
    assert "failed: out of memory\nTrue\n" in ran.stdout


def test_threads_may_share_a_filter() -> None:
    passes = compile_expression("any([n == value.n for n in range(2000)])")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: passes(event({"n": n})), range(1500, 2500)))
    assert found == [True] * 500 + [False] * 500


names = st.sampled_from(["a", "b", "c"])
objects = st.dictionaries(names, st.integers(0, 3) | st.dictionaries(names, st.integers(0, 3)))
reads = st.sampled_from(
    ["value.{0}", 'value["{0}"]', 'value.get("{0}")', '("{0}" in value)', "value.{0}.{1}"]
)


@given(objects, reads, reads, st.tuples(names, names))
def test_passing_only_the_fields_that_are_read_changes_nothing(
    value: object, left: str, right: str, fields: tuple[str, str]
) -> None:
    text = f"{left.format(*fields)} == {right.format(*fields[::-1])}"
    whole = f"({text}) if type(value) == type(value) else None"
    assert outcome(text, value) == outcome(whole, value)


def outcome(text: str, value: object) -> object:
    try:
        return compile_expression(text)(event(value))
    except FilterFailed as error:
        return str(error).partition(" failed: ")[2]
