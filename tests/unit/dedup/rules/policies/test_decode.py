import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies.decode import Undecodable, as_json, as_raw, fingerprint
from outbox.envelope import Record
from outbox.errors import InvalidEvent
from outbox.event import Event

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3
    ),
    max_leaves=8,
)  # fmt: skip


def record(
    value: bytes | None = b"{}",
    key: bytes | None = b"k",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    return Record("orders", 3, 17, 1_000, key, value, headers)


@given(json_values)
def test_a_json_value_comes_as_python_has_it(value: object) -> None:
    written = Event(topic="orders", type="OrderPlaced", value={"it": value}).value_bytes()
    assert as_json(record(written)).value == {"it": value}


def test_a_tombstone_stays_none() -> None:
    assert as_json(record(None)).value is None
    assert as_raw(record(None)).value is None


@pytest.mark.parametrize(
    "value", [b"", b"{", b"NaN", b"[1e999, Infinity]", b'"\xff"', b'"\\ud800"', b"[" * 100_000]
)
def test_a_value_that_is_not_json_says_where_it_is(value: bytes) -> None:
    with pytest.raises(Undecodable, match=r"the value of orders/3/17 is not JSON: "):
        as_json(record(value))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (b"text/plain", "its content type is text/plain: a handler that wants its bytes sets"),
        (b"\xff" * 200, "its content type is \\xff"),
        (b"application/json", None),
        (b"", None),
        (None, None),
    ],
)
def test_a_value_that_is_not_json_says_what_it_is_instead(
    kind: bytes | None, said: str | None
) -> None:
    with pytest.raises(Undecodable) as refused:
        as_json(record(b"hello", headers=(("content-type", kind),)))
    assert ("content type" in str(refused.value)) is (said is not None)
    assert said is None or said in str(refused.value)
    assert len(str(refused.value)) < 800


def test_a_raw_value_stays_as_it_is() -> None:
    assert as_raw(record(b"\xff{")).value == b"\xff{"


def test_a_key_is_text_where_it_is_text() -> None:
    assert as_json(record(key="straße".encode())).key == "straße"
    assert as_json(record(key=b"\xff")).key == b"\xff"
    assert as_json(record(key=None)).key is None


@pytest.mark.parametrize("header", [("dovecote_round", b"x"), ("ce_id", b"\xff")])
def test_a_record_with_an_unreadable_identity_does_not_decode(header: tuple[str, bytes]) -> None:
    with pytest.raises(InvalidEvent, match=header[0]):
        as_json(record(headers=(header,)))


def test_a_fingerprint_tells_values_apart_and_nothing_else() -> None:
    assert fingerprint(record(b"1")) == fingerprint(record(b"1", key=b"other"))
    assert fingerprint(record(b"1")) != fingerprint(record(b"2"))
    assert fingerprint(record(b"")) != fingerprint(record(None))
