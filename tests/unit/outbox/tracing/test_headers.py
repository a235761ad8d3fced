"""The trace context of a record is read as W3C says, whatever the world sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.tracing.headers import MOST_STATE, Parent, kept, members, parent, texts
from outbox.tracing.spans import links_of, where_from, within

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01".encode()

ODD = [
    b"",
    b"rubbish",
    b"\xff\xfe",
    VALID.upper(),
    VALID + b"-more",
    VALID[:-1],
    VALID + b"0",
    b" " + VALID,
    VALID + b"\n",
    f"ff-{TRACE}-{SPAN}-01".encode(),
    f"00-{'0' * 32}-{SPAN}-01".encode(),
    f"00-{TRACE}-{'0' * 16}-01".encode(),
    b"00-" + b"a" * 1_000_000,
    b"01-" + VALID[3:] + b"-" + b"x" * 2_000,
]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_what_is_no_context_is_none(value: bytes) -> None:
    assert parent([("traceparent", value)]) is None
    assert where_from([("traceparent", value)]) is None
    assert within([("traceparent", value)])[1] is None


def test_a_context_is_read_and_a_later_version_too() -> None:
    read = Parent(int(TRACE, 16), int(SPAN, 16), 1)
    assert parent([("other", b""), ("traceparent", VALID)]) == read
    assert parent([("traceparent", b"cc" + VALID[2:] + b"-what-will-be")]) == read
    assert read.sampled
    assert not read._replace(flags=2).sampled


def test_the_first_header_of_a_name_counts() -> None:
    other = f"00-{TRACE}-{'1' * 16}-00".encode()
    found = parent([("traceparent", VALID), ("traceparent", other)])
    assert found is not None
    assert found.sampled


@pytest.mark.parametrize(
    ("state", "read"),
    [
        (b"a=1, b=2,,\tc@d=3", (("a", "1"), ("b", "2"), ("c@d", "3"))),
        (b"", ()),
        (b"a=1,a=2", ()),
        (b"A=1", ()),
        (b"a=1,b", ()),
        (b"a=\xff", ()),
        (b"a=\x00", ()),
        (b",".join(b"k%d=v" % number for number in range(33)), ()),
        (b"a=" + b"x" * MOST_STATE, ()),
    ],
)
def test_a_state_is_read_whole_or_not_at_all(
    state: bytes, read: tuple[tuple[str, str], ...]
) -> None:
    assert members(state) == read
    found = parent([("traceparent", VALID), ("tracestate", state)])
    assert found is not None
    assert found.state == read
    context = where_from([("traceparent", VALID), ("tracestate", state)])
    assert context is not None
    assert tuple(context.trace_state.items()) == read


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["traceparent", "tracestate", "baggage", "x"]),
            st.none() | st.binary(max_size=80) | st.from_regex(rb"00-[0-9a-f]{32}-.*"),
        ),
        max_size=6,
    )
)
def test_no_headers_break_anything(headers: list[tuple[str, bytes | None]]) -> None:
    where_from(headers)
    within(headers)
    links_of([headers, headers])


def test_propagators_get_only_short_headers_that_can_be_shown() -> None:
    given_ = [("b3", b"1-2-1"), ("b3", b"later"), ("x", b"a"), ("y", b"\x00"), ("z", b"a" * 2_000)]
    assert texts(given_, frozenset({"b3", "y", "z"})) == {"b3": "1-2-1"}


def test_a_record_gets_only_short_headers_of_text_with_traceparent_first() -> None:
    made = [("b3", "1"), ("n", 1), ("tracestate", "x" * 600), ("traceparent", VALID.decode())]
    assert kept(made) == (("traceparent", VALID), ("b3", b"1"))
    assert kept([("traceparent", "no")]) == ()


def test_links_are_one_for_each_trace_and_no_more_than_an_sdk_keeps() -> None:
    def of(number: int) -> list[tuple[str, bytes | None]]:
        return [("traceparent", f"00-{number:032x}-{SPAN}-01".encode())]

    assert len(links_of([of(7), of(7), of(8)])) == 2
    assert len(links_of(of(number) for number in range(1, 1_000))) == 128
