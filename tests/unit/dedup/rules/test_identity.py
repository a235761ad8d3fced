"""An event is known by its source and its id, wherever its copies are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.retries import copies
from dedup.rules.identity import Identity, has_id, identity, of_topic, own, stored, stored_before
from outbox import envelope
from outbox.envelope import Pair, Record

TOPIC_ID = "PolNg21HQi6d_zBlsLuZrA"
LIVING: type[Record] = of_topic(Record, TOPIC_ID)


def record(*headers: Pair, topic: str = "orders") -> Record:
    return LIVING(topic, 3, 17, 1_000, b"k", b"{}", headers)


def test_an_identity_is_the_source_the_id_and_the_round() -> None:
    headers = ("ce_id", b"e1"), ("ce_source", b"/shop"), ("dovecote_round", b"2")
    assert identity(record(*headers)) == ("/shop", "e1", 2)
    assert identity(record(*headers[:2])) == ("/shop", "e1", 0)
    assert identity(record(*headers[:2], topic="other")) == ("/shop", "e1", 0)
    assert identity(record(headers[0])) == ("orders", "e1", 0)


def test_a_place_has_the_id_of_its_topic_which_a_topic_made_anew_has_not() -> None:
    again = of_topic(Record, "b" * 22)(*record())
    old_broker = Record(*record())
    assert identity(record()) == ("orders", f"{TOPIC_ID}/3/17", 0)
    assert len({identity(each) for each in (record(), again, old_broker)}) == 3
    assert identity(old_broker) == ("orders", "orders/3/17", 0)
    assert identity(record(("ce_source", b"/shop"))) == ("/shop", f"{TOPIC_ID}/3/17", 0)


@pytest.mark.parametrize(
    "header", [("dovecote_round", b"x"), ("ce_id", b"\xff"), ("ce_source", b"\xff")]
)
def test_a_record_with_an_unreadable_identity_is_a_duplicate_of_nothing(header: Pair) -> None:
    assert identity(record(header, ("ce_id", b"e"))).id == f"{TOPIC_ID}/3/17"


@pytest.mark.parametrize(
    "headers",
    [(), (("ce_id", b"7"),), (("ce_source", b"/s"),), (("ce_id", b"7"), ("ce_source", b"/s"))],
)
def test_copies_keep_the_identity_on_every_topic(headers: tuple[Pair, ...]) -> None:
    first = record(*headers)
    known = identity(first)
    retried = copies.retried(first, known, now=1, due=2, error="busy")
    held = Record("orders.retry", 0, 5, 1, retried.key, retried.value, retried.headers)
    assert identity(held) == known._replace(round=1)
    for made in (
        copies.returned(first, known),
        copies.dead(first, known, now=1, error="no"),
        copies.emptied(first, now=1, error="too large"),
        copies.dead(held, identity(held), now=1, error="no"),
        copies.emptied(held, now=1, error="too large"),
    ):
        dead = Record("dead", 0, 9, 1, made.key, made.value, made.headers)
        assert identity(dead)[:2] == known[:2]
        requeued = copies.requeued(dead)
        again = Record("other", 1, 1, 1, requeued.key, requeued.value, requeued.headers)
        assert identity(again)[:2] == known[:2]
        assert envelope.decode(again).source == known.source


def test_a_copy_that_names_no_source_has_the_topic_of_its_origin() -> None:
    history = [("dovecote_origin", b"orders/3/17"), ("dovecote_round", b"1")]
    copy = Record("orders.retry", 0, 5, 1, b"k", b"{}", [("ce_id", b"7"), *history])
    assert identity(copy) == ("orders", "7", 1)
    assert envelope.decode(copy).source == "orders"
    again = copies.retried(copy, identity(copy), now=1, due=2, error="busy")
    assert dict(again.headers)["ce_source"] == b"orders"
    for origin in (b"", b"/", b"orders", b"/0/1", b"\xff"):
        odd = copy._replace(headers=[("ce_id", b"7"), ("dovecote_origin", origin)])
        assert identity(odd).source == envelope.decode(odd).source == "orders.retry"


_HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["ce_id", "ce_source", "dovecote_round", "other"]),
        st.sampled_from([None, b"", b"1", b"2", b"\xff"]),
    ),
    max_size=6,
)


@given(_HEADERS)
def test_a_quick_look_at_the_headers_says_the_same(headers: list[Pair]) -> None:
    found = own(headers, "orders")
    assert found is None or found == identity(record(*headers))
    if not has_id(headers):
        assert found is None


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, texts, texts)
def test_two_events_have_two_names(source: str, id_: str, other: str, another: str) -> None:
    one, two = Identity(source, id_), Identity(other, another)
    assert (one.name == two.name) is (one == two)
    assert (stored(one) == stored(two)) is (one == two)


def test_what_an_index_cannot_take_is_kept_as_a_digest() -> None:
    long = Identity("/s" * 100_000, "x" * 100_000)
    assert len(stored(long).encode()) < 200
    assert "\0" not in stored(Identity("\0", "\0"))
    assert stored(Identity("a@b%c", "7@")) == "7@@a%40b%25c"


def test_what_an_earlier_version_kept_is_recognised() -> None:
    assert stored_before(Identity("/s", "7")) == "7"
    assert stored_before(identity(record())) == "orders/3/17"
    assert stored_before(Identity("/s", "a/1/2")) == "a/1/2"
