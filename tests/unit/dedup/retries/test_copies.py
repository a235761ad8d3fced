"""The remainder of a record that no topic takes fits into any topic."""

from itertools import product

import pytest

from dedup.retries import copies
from outbox import envelope
from outbox.envelope import Pair, Record

HUGE = b"x" * 1_000_000
ORIGIN = b"orders/3/14"
HUGE_NUMBER = b"9" * 5_000
NAMES = (envelope.ID, envelope.ORIGIN, envelope.GROUP, envelope.ERROR, envelope.ATTEMPT, "other")


def emptied(key: bytes | None, headers: list[Pair]) -> copies.Copy:
    record = Record("orders", 3, 15, 0, key, HUGE, headers)
    return copies.emptied(record, now=1, error="too large")


def size(copy: copies.Copy) -> int:
    return len(copy.key or b"") + sum(len(name) + len(text or b"") for name, text in copy.headers)


@pytest.mark.parametrize(("name", "key"), [*product(NAMES, [b"k", HUGE, None])])
def test_what_is_left_is_small_whatever_was_large(name: str, key: bytes | None) -> None:
    copy = emptied(key, [(name, HUGE)])
    assert copy.value is None
    assert size(copy) < 10_000
    assert dict(copy.headers)[envelope.ORIGIN] == b"orders/3/15"


def test_what_is_left_says_what_fits() -> None:
    copy = emptied(b"k", [(envelope.ID, b"e1"), (envelope.ORIGIN, ORIGIN), (envelope.GROUP, b"g")])
    found = dict(copy.headers)
    assert copy.key == b"k"
    assert (found[envelope.ID], found[envelope.ORIGIN]) == (b"e1", ORIGIN)
    assert (found[envelope.GROUP], found[envelope.ERROR]) == (b"g", b"too large")
    assert copies.left_of(found[envelope.WITHOUT_VALUE] or b"") == copies.left(
        ("orders", 3, 15), HUGE
    )


def test_where_a_value_is_can_be_read_again_whatever_stands_there() -> None:
    for place in (("orders", 3, 15), ("a/b", 0, 0), None):
        assert copies.left_of(copies.left(place, b"v").encode()) == copies.left(place, b"v")
    assert copies.left_of(copies.left(None, None).encode()) == copies.left(None, b"")
    for nonsense in (
        b"",
        b"1",
        b"orders/3/x 5",
        b"orders/3/4 many abc",
        b"\xff \xff \xff",
        b"a/0/0 " + HUGE_NUMBER + b" abc",
    ):
        assert copies.left_of(nonsense) is None
    for odd in (b"orders/3/x", b"orders/3/" + HUGE_NUMBER):
        assert copies.left_of(odd + b" 5 abc") == copies.Left(None, 5, "abc")
