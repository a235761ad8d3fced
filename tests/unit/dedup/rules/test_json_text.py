"""JSON is read so that no number changes, or it is refused with the place."""

from typing import Any

import pytest

from dedup.rules.json_text import loads, loads_all

DEEP, TOO_DEEP = 201, 202


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"id":123456789012345678901234567890}', {"id": 123456789012345678901234567890}),
        ("[1e308,-0.0,1.5,18446744073709551616]", [1e308, -0.0, 1.5, 2**64]),
        (b"[" * DEEP + b"]" * DEEP, None),
    ],
)
def test_what_json_can_hold_is_read_exactly(text: bytes | str, value: Any) -> None:
    found = loads(text)
    assert value is None or (found, repr(found)) == (value, repr(value))


@pytest.mark.parametrize("around", [b"", b" " * 500])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"1e999", "the value is inf"),
        (b'{"lines":[{"price":1},{"price":-1e400}]}', r"lines\[1\].price is -inf"),
        (b"[" * TOO_DEEP + b"]" * TOO_DEEP, "recursion limit"),
        (b"1" * 4_301, "out of range"),
        (b"NaN", "line 1 column"),
        (b'"\\ud800"', "hex escape"),
        (b'"\xff"', "unicode"),
        (b"", "EOF"),
        (b'{"a":', "EOF"),
    ],
)
def test_what_it_cannot_hold_is_refused_with_its_place(
    text: bytes, says: str, around: bytes
) -> None:
    with pytest.raises(ValueError, match=says):
        loads(around + text)


def test_many_texts_are_read_as_each_is() -> None:
    deep = b"[" * DEEP + b"]" * DEEP + b" " * 300
    assert loads_all([b'{"a":1}', b" 2.5 ", deep]) == [{"a": 1}, 2.5, loads(deep)]
    assert loads_all([]) == []


@pytest.mark.parametrize(
    "text", [b"", b"1,2", b"[1", b"NaN", b"1e999", b'"\xff"', b"[" * 300 + b"]" * 300]
)
def test_many_texts_need_a_closer_look_if_one_is_wrong(text: bytes) -> None:
    assert loads_all([b"1", text, b"2"]) is None
