"""Text from others is printed so that it can neither steer a terminal nor forge a line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovecote.cli import printed


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        ("OrderPlaced", "OrderPlaced"),
        ("größer 東京", "größer 東京"),
        ("Esc\x1b[31mRED", r"'Esc\x1b[31mRED'"),
        ("a\nid           FORGED", r"'a\nid           FORGED'"),
        ("c1 \x9b31m", r"'c1 \x9b31m'"),
        ("turned \u202e round", r"'turned \u202e round'"),
        (r"'a\x1b'", '"' + r"'a\\x1b'" + '"'),
    ],
)
def test_text_is_as_it_is_unless_a_character_is_not_printable(given_: str, shown: str) -> None:
    assert printed.text(given_) == shown


def test_what_is_no_text_is_hex_and_a_key_is_told_from_none() -> None:
    assert list(printed.lines({"value": b"\xff\x00"})) == ["value        hex ff00"]
    assert printed.key(b"\xff") == "hex ff"
    assert (printed.key(None), printed.key(b"none")) == ("none", "'none'")


@pytest.mark.parametrize("value", [b"a" * 50_000, b"\n" * 50_000, b"\xff" * 50_000])
def test_a_long_value_is_cut_and_its_size_said(value: bytes) -> None:
    (line,) = printed.lines({"value": value})
    assert len(line) < 5_000
    assert line.endswith(" … (50,000 bytes in all)")


def test_headers_are_one_line_whatever_is_in_them() -> None:
    headers = [("plain", b"1"), ("e\x1b", b"\x07"), ("bin", b"\xff"), ("gone", None)]
    (line,) = printed.lines({"headers": headers})
    assert line == r"headers      plain: '1', 'e\x1b': '\x07', bin: hex ff, gone: none"


@given(st.text() | st.binary())
def test_whatever_it_is_it_stays_on_its_line_and_steers_nothing(value: str | bytes) -> None:
    (line,) = printed.lines({"value": value})
    assert line.isprintable()


@given(st.text() | st.binary())
def test_json_has_all_of_it(value: str | bytes) -> None:
    data = value.encode(errors="replace") if isinstance(value, str) else value
    line = printed.as_json({"value": data, "headers": [("h", data)]})
    assert "\x1b" not in line
    told = json.loads(line)
    for found in (told["value"], told["headers"][0][1]):
        assert (bytes.fromhex(found["hex"]) if isinstance(found, dict) else found.encode()) == data


def test_messages_keep_their_lines_and_json_stays_json() -> None:
    assert printed.visible("bad\n  \x1b[31m") == "bad\n  \\u001b[31m"
    entry = {"key": "\x9b31m \U000e0001 東京\x7f"}
    shown = printed.visible(json.dumps(entry, ensure_ascii=False, indent=2))
    assert "\x9b" not in shown
    assert "東京" in shown
    assert json.loads(shown) == entry
