"""The short way to a request, which has to come to what the longer way comes to."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dedup.rules.identity import identity
from dovecote.push.rules.sending import patterns
from dovecote.push.rules.sending.patterns import Patterns, Unclear
from dovecote.push.rules.sending.request import Composer, Form, Request
from outbox.envelope import Pair, Record

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FORMS = [
    Form(url="https://shop.example/hook", format="cloudevents_binary"),
    Form(
        url="https://shop.example/hook?a=1",
        format="cloudevents_binary",
        detect_json=False,
        headers={"content-type": "text/x", "traceparent": "mine"},
    ),
]
NAMES = [
    *("ce_id", "ce_source", "ce_type", "ce_specversion", "ce_time", "ce_subject", "ce_data"),
    *("ce_datacontenttype", "content-type", "traceparent", "tracestate", "ce_Odd", "x-other"),
    *("dovecote_attempt", "ce_" + "a" * 41),
]
VALUES = st.one_of(
    st.none(),
    st.sampled_from([b"", b"2", b"a.b", b"@%", "ü".encode(), b"\xff", b"a\r\nb: c", TRACE]),
    st.binary(max_size=8),
    st.text(max_size=8).map(str.encode),
)
WHOLE: list[Pair] = [("ce_id", b"e.1"), ("ce_source", b"/shop"), ("ce_type", b"Placed")]


def record(headers: list[Pair], value: bytes | None = b"{}") -> Record:
    return Record("orders", 3, 42, 1_700_000_000_000, b"k", value, headers)


def outcome(made: Callable[[], Request]) -> object:
    try:
        return made()[:5]
    except Exception as error:  # noqa: BLE001  # whatever it is, both ways have it
        return type(error), str(error)


@given(
    st.sampled_from(FORMS),
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6),
    st.sampled_from([[], WHOLE]),
    st.sampled_from([b"{}", b"no JSON", None]),
)
@example(FORMS[0], [("traceparent", TRACE), ("tracestate", b"a=b")], WHOLE, b"{}")
@example(FORMS[1], [("traceparent", TRACE), ("content-type", b"text/csv")], WHOLE, b"{}")
@example(FORMS[0], [("content-type", b"text/csv; charset=\xc3\xbc")], WHOLE, None)
@example(FORMS[1], [("content-type", b"\xff")], WHOLE, b"{}")
@example(FORMS[0], [("ce_subject", b"x" * 20_000)], WHOLE, b"{}")
def test_both_ways_come_to_the_same(
    form: Form,
    headers: list[Pair],
    before: list[Pair],
    value: bytes | None,
) -> None:
    given_ = record([*before, *headers], value)
    composer = Composer(form)
    short = outcome(lambda: composer.request(given_))
    assert short == outcome(lambda: composer.request(given_, identity(given_)))
    assert short == outcome(lambda: composer.request(given_))  # from its pattern


@given(
    st.lists(
        st.permutations(
            ["ce_id", "ce_source", "ce_type", "ce_time", "content-type", "x-other"]
        ).flatmap(
            lambda names: st.tuples(
                *(st.tuples(st.just(name), st.sampled_from([b"a", b"b"])) for name in names)
            )
        ),
        min_size=2,
        max_size=8,
    )
)
@example(
    [
        (*WHOLE, ("content-type", b"text/csv")),
        (
            ("ce_id", b"e.1"),
            ("content-type", b"/shop"),
            ("ce_source", b"Placed"),
            ("ce_type", b"text/csv"),
        ),
    ]
)
def test_headers_in_another_order_are_no_others(found: list[tuple[Pair, ...]]) -> None:
    composer = Composer(FORMS[0])
    for each in [record(list(headers)) for headers in found]:
        short = outcome(partial(composer.request, each))
        assert short == outcome(partial(composer.request, each, identity(each)))


def test_a_record_without_a_history_is_at_its_first_attempt() -> None:
    composer = Composer(FORMS[0])
    assert composer.request(record(WHOLE)).is_first
    assert not composer.request(record([*WHOLE, ("dovecote_attempt", b"2")])).is_first


def test_the_patterns_of_many_records_and_of_long_names_are_not_kept() -> None:
    found = Patterns(lambda name: name.removeprefix("ce_"), most=100)
    names = tuple(name for name, _ in WHOLE)
    for number in range(1_000):
        found.of((*names, f"ce_n{number}"))
        with pytest.raises(Unclear):
            found.of((f"x{number}",))
    found.of((*names, "x" * 10_000))
    kept = found._kept  # its size is the promise
    assert len(kept) <= patterns._MOST_KEPT
    assert max(sum(map(len, each)) for each in kept) < 10_000
