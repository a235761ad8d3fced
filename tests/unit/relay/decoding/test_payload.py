"""An event is decoded from its bytes as it was written, and nothing else is taken for one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.decoding.payload import Kinds, count_events, decode_event, decode_events
from relay.rules.row import KEY, POSITION
from tests.unit.relay.decoding.messages import packed, payload, text

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
    other = b"\x03" + payload()[1:]
    for read in (decode_event, decode_events):
        with pytest.raises(ValueError, match="format 3, this version knows 1 and 2: upgrade"):
            read(other, 0, 1, {})
    with pytest.raises(ValueError, match="format 3, this version knows 1 and 2: upgrade"):
        count_events(other, 0)


events = st.lists(
    st.builds(
        payload,
        kind=st.tuples(st.just(b"t"), st.sampled_from([b"T", b"U"]), st.just(b"/s"), st.none()),
        subject=st.none() | texts.map(str.encode),
        key=optional,
        value=optional,
        headers=headers.map(lambda all_: [part for n, v in all_ for part in (n.encode(), v)]),
    ),
    max_size=5,
)


@given(events)
def test_events_of_one_message_are_those_that_were_packed(written: list[bytes]) -> None:
    data = b"before" + packed(*written)
    assert count_events(data, 6) == len(written)
    rows = decode_events(data, 6, 7, {})
    assert rows == [decode_event(event, 0, 7 + n, {}) for n, event in enumerate(written)]


def test_of_the_events_of_one_message_those_come_that_are_wanted() -> None:
    data = packed(*[payload(key=text(n) if n else None, value=text(n)) for n in range(5)])
    asked: list[tuple[bytes | None, bytes]] = []

    def is_own(key: bytes | None, event_id: bytes) -> bool:
        asked.append((key, event_id))
        return key in {None, b"3"}

    rows = decode_events(data, 0, 7, {}, is_own=is_own)
    assert [(row[POSITION], row[KEY]) for row in rows] == [(7, None), (10, b"3")]
    id_ = b"0190d3f2-0000-7000-8000-000000000001"
    assert asked == [(key, id_) for key in (None, b"1", b"2", b"3", b"4")]


PACKED = packed(payload(key=b"k", value=b"v"), payload(value=b"w", headers=(b"n", b"1")))


@given(st.integers(0, len(PACKED) - 1))
def test_a_message_that_was_cut_off_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_events(PACKED[:length], 0, 1, {})


@given(st.integers(-3, 1 << 31 - 1).filter(lambda n: n != 2))
def test_another_number_of_events_than_there_are_is_an_error(number: int) -> None:
    with pytest.raises(ValueError, match="not an event"):
        decode_events(PACKED[:1] + struct.pack(">i", number) + PACKED[5:], 0, 1, {})


@given(st.integers(0, len(payload(key=b"k", value=b"v")) - 1))
def test_an_event_that_was_cut_off_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_event(payload(key=b"k", value=b"v")[:length], 0, 1, {})


def test_what_is_remembered_is_bounded() -> None:
    kinds: Kinds = {}
    for number in range(1_500):
        decode_event(payload(kind=(b"t", b"T", str(number).encode(), None)), 0, 1, kinds)
    assert len(kinds) == 1_000
