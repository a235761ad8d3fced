"""Which topics the entries of `source.topics` mean."""

import pytest

from spark_jobs.source.topics import (
    belongs,
    entry_of,
    matched,
    patterns,
    plain,
    problem,
    read_by_pattern,
    unmatched,
)

THERE = [
    "__consumer_offsets",
    "dovecote.markers.q",
    "dovecote.progress.orders",
    "orders",
    "orders.eu",
    "orders.old",
    "orders.us",
    "returns",
]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (("orders",), None),
        (("orders", "returns"), None),
        (("*",), None),
        (("orders.?",), None),
        (("orders.[a-z]", "x[!ab]*"), None),
        (("orders.*", "!orders.old"), None),
        (("orders.*", "!orders.tmp.*"), None),
        (("!orders.old", "orders.*"), None),
        (("orders.*", "orders.eu"), None),
        (("orders.*", "orders.eu", "!orders.e*"), None),
        (("a" * 249,), None),
        (("a" * 250,), "matches no topic"),
        (("",), "'' matches no topic"),
        (("a b",), "'a b' matches no topic"),
        (("^orders",), "are no regular expressions"),
        (("__consumer_offsets",), "reading it never ends"),
        (("orders", "__transaction_state"), "reading it never ends"),
        (("orders,returns",), "matches no topic"),
        (("orders.[ab",), "'orders.[ab' matches no topic"),
        (("orders.]",), "matches no topic"),
        (("orders.[]",), "matches no topic"),
        (("or{d,e}rs*",), "matches no topic"),
        (("*", "!"), "'' matches no topic"),
        (("*", "!!a"), "'!a' matches no topic"),
        (("*", "!a[b"), "'a[b' matches no topic"),
        (("!orders",), "'!orders' takes nothing out: no other entry is a pattern"),
        (("orders", "!returns"), "'!returns' takes nothing out"),
        (("orders", "!returns.*"), "'!returns.*' takes nothing out"),
        (("orders.*", "orders.eu", "!orders.eu"), "'orders.eu' is there by its name, and taken"),
    ],
)
def test_entries_that_cannot_be_are_refused(entries: tuple[str, ...], said: str | None) -> None:
    found = problem(entries)

    assert found is None if said is None else said in (found or "")


def test_an_entry_is_a_name_a_pattern_or_an_exclusion() -> None:
    entries = ("orders", "o*", "!o.old", "[ab]", "x?", "!y*", "returns")

    assert plain(entries) == ("orders", "returns")
    assert patterns(entries) == ("o*", "[ab]", "x?")


@pytest.mark.parametrize(
    ("topic", "entries", "entry"),
    [
        ("orders", ("orders",), "orders"),
        ("orders", ("returns",), None),
        ("orders.eu", ("orders",), None),
        ("orders.eu", ("orders.*",), "orders.*"),
        ("orders", ("orders.*",), None),
        ("orders.", ("orders.*",), "orders.*"),
        ("orders.eu", ("orders.??",), "orders.??"),
        ("orders.eu1", ("orders.??",), None),
        ("orders.eu", ("orders.[de]?",), "orders.[de]?"),
        ("orders.eu", ("orders.[!de]?",), None),
        ("Orders.eu", ("orders.*",), None),
        ("orders.*", ("orders.*",), None),
        ("!orders.eu", ("*", "!orders.eu"), None),
        ("", ("*",), None),
        ("orders.eu", ("*", "orders.*"), "*"),
        ("orders.eu", ("*", "orders.eu"), "orders.eu"),
        ("orders.old", ("orders.*", "!orders.old"), None),
        ("orders.old", ("!orders.old", "orders.*"), None),
        ("orders.old.1", ("orders.*", "!orders.old*"), None),
        ("orders.eu", ("orders.*", "!orders.old*"), "orders.*"),
        ("orders.eu", ("o*", "orders.eu", "!orders.*"), "orders.eu"),
        ("__consumer_offsets", ("*",), None),
        ("__consumer_offsets", ("__*",), None),
        ("__mine", ("*", "__mine"), "__mine"),
        ("_mine", ("*",), "*"),
        ("dovecote.markers.q", ("*",), None),
        ("dovecote.markers.q", ("dovecote.*",), None),
        ("dovecote.markers.q", ("dovecote.markers.q",), "dovecote.markers.q"),
        ("dovecote.progress.q", ("*",), None),
        ("dovecote.orders", ("dovecote.*",), "dovecote.*"),
    ],
)
def test_a_topic_comes_by_its_name_or_by_a_pattern(
    topic: str, entries: tuple[str, ...], entry: str | None
) -> None:
    assert entry_of(topic, entries) == entry
    assert belongs(topic, entries) == (entry is not None)
    assert belongs(topic, frozenset(entries)) == (entry is not None)


@pytest.mark.parametrize(
    ("entries", "found", "lacking"),
    [
        (("orders",), [], []),
        (("absent",), [], []),
        (("*",), ["orders", "orders.eu", "orders.old", "orders.us", "returns"], []),
        (("orders.*", "!orders.old"), ["orders.eu", "orders.us"], []),
        (("orders.*", "orders.eu"), ["orders.old", "orders.us"], []),
        (("orders.eu", "*.eu"), [], []),
        (("orders.*", "x*"), ["orders.eu", "orders.old", "orders.us"], ["x*"]),
        (("orders.o*", "re*", "!orders.old"), ["returns"], ["orders.o*"]),
        (("__*", "dovecote.*"), [], ["__*", "dovecote.*"]),
    ],
)
def test_patterns_take_in_what_is_there(
    entries: tuple[str, ...], found: list[str], lacking: list[str]
) -> None:
    assert matched(entries, reversed(THERE)) == found
    assert unmatched(entries, THERE) == lacking


def test_a_topic_that_is_written_may_not_come_by_a_pattern() -> None:
    written = ("orders.sums", "orders.dead")

    assert read_by_pattern(written, ("orders", "returns.*")) is None
    assert read_by_pattern(written, ("orders.*", "!orders.sums", "!orders.dead")) is None
    assert read_by_pattern(written, ("orders.*", "orders.sums", "!orders.dead")) is None
    assert read_by_pattern(written, ("o*", "!*.sums")) == (
        "topic 'orders.dead' is written, and read by the pattern 'o*': its records would never "
        'end. Add "!orders.dead" to the topics that are read'
    )
