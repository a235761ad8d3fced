"""An event is read from its bytes as it was written, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.capture.payload import Kinds, decode_event
from tests.unit.relay.capture.messages import payload

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
optional = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(texts.filter(bool), optional), max_size=4)


@given(texts, texts, texts, st.none() | texts, st.none() | texts, optional, optional, headers)
def test_what_was_written_is_read(
    topic: str,
    type_: str,
    source: str,
    media: str | None,
    subject: str | None,
    key: bytes | None,
    value: bytes | None,
    pairs: list[tuple[str, bytes | None]],
) -> None:
    written = payload(
        kind=(topic.encode(), type_.encode(), source.encode(), encoded(media)),
        subject=encoded(subject),
        key=key,
        value=value,
        headers=tuple(part for name, data in pairs for part in (name.encode(), data)),
    )
    kinds: Kinds = {}
    for _ in range(2):
        assert decode_event(written, 0, 7, kinds) == (
            7, "0190d3f2-0000-7000-8000-000000000001", 42, topic, key, value, type_, source,
            subject, media, [n for n, _ in pairs] or None, [v for _, v in pairs] or None,
        )  # fmt: skip
    assert len(kinds) == 1


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def test_another_format_is_named() -> None:
    with pytest.raises(ValueError, match="of format 2, this version knows 1: upgrade dovecote"):
        decode_event(b"\x02" + payload()[1:], 0, 1, {})


@given(st.integers(0, len(payload(key=b"k", value=b"v")) - 1))
def test_an_event_that_was_cut_off_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_event(payload(key=b"k", value=b"v")[:length], 0, 1, {})


def test_what_is_remembered_is_bounded() -> None:
    kinds: Kinds = {}
    for number in range(1_500):
        decode_event(payload(kind=(b"t", b"T", str(number).encode(), None)), 0, 1, kinds)
    assert len(kinds) == 1_000
