"""A history counts where the group writes it: not on topics to which others write."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.retries import copies
from dedup.retries.backoff import Backoff
from dedup.retries.letter import letter
from dedup.retries.plan import Plan, Tier
from dedup.rules.history import believed
from dedup.rules.identity import Identity
from dedup.rules.record import Record
from dedup.testing import Trial
from outbox import envelope
from outbox.envelope import (
    ATTEMPT,
    DELIVERY,
    ERROR,
    FIRST_SEEN,
    HOPS,
    ID,
    NOT_BEFORE,
    ORIGIN,
    ROUND,
    Pair,
)
from outbox.event import Event

COPIED: list[Pair] = [
    (ATTEMPT, b"9"),
    (ROUND, b"8"),
    (FIRST_SEEN, b"1"),
    (NOT_BEFORE, b"4070908800000"),
    (ORIGIN, b"other/0/1"),
    (ERROR, b"busy"),
]
RECORD = Record("orders", 0, 5, 0, b"k", b"1", [(ID, b"e1")])
BACKOFF = Backoff(base=timedelta(seconds=1), ceiling=timedelta(seconds=1), max_attempts=3)


def trial(calls: list[Event], *, hop_limit: int | None = None) -> Trial:
    def handle(event: Event) -> None:
        calls.append(event)
        raise ValueError

    tiers = (Tier("retry"),)
    plan = Plan(patience=BACKOFF, dead_letters="dead", tiers=tiers, hop_limit=hop_limit)
    return Trial(handle, plan=plan)


@pytest.mark.parametrize("headers", [COPIED, COPIED[:1], COPIED[3:4], [(ATTEMPT, b"x")]])
def test_a_copied_or_forged_history_on_a_main_topic_burns_no_attempt(headers: list[Pair]) -> None:
    calls: list[Event] = []
    trying = trial(calls)
    trying.feed(RECORD._replace(headers=[(ID, b"e1"), *headers]))
    trying.wait(timedelta(hours=1))
    assert len(calls) == 3
    (dead,) = trying.dead_letters
    assert letter(dead).attempts == 3
    assert letter(dead).origin == "orders/0/0"
    assert letter(dead).reason.startswith("ValueError")


@pytest.mark.parametrize("headers", [COPIED[:1], COPIED[:2], [*COPIED[:4], (ORIGIN, b"no place")]])
def test_a_history_on_a_retry_topic_counts_only_if_it_is_whole(headers: list[Pair]) -> None:
    assert believed([(ID, b"e1"), *headers], retry=True)[0] == (ID, b"e1")
    assert DELIVERY.isdisjoint(dict(believed(headers, retry=True)))
    assert believed(COPIED, retry=True) == COPIED


def test_what_we_write_is_believed() -> None:
    retried = copies.retried(RECORD, Identity("/s", "e1"), now=5, due=9, error="busy").headers
    returned = copies.returned(RECORD, Identity("/s", "e1")).headers
    assert believed(retried, retry=True) == retried
    assert believed(returned, retry=True) == returned
    dead = copies.dead(
        RECORD._replace(headers=retried), Identity("/s", "e1", 1), now=9, error="busy"
    )
    requeued = copies.requeued(RECORD._replace(headers=dead.headers)).headers
    for retry in (False, True):
        assert believed(requeued, retry=retry) == requeued
        assert envelope.delivery(RECORD._replace(headers=requeued)).round == 2


def test_copied_rounds_still_count_as_hops() -> None:
    calls: list[Event] = []
    trying = trial(calls, hop_limit=5)
    trying.feed(RECORD._replace(headers=[(ID, b"e1"), *COPIED]))
    assert calls == []
    assert "it has come round 8 times" in letter(trying.dead_letters[0]).reason
    assert believed([(HOPS, b"2"), (ROUND, b"3")], retry=False) == [(HOPS, b"5")]


PAIRS = st.lists(
    st.tuples(
        st.sampled_from([*sorted(DELIVERY), HOPS, ID]), st.one_of(st.none(), st.binary(max_size=9))
    ),
    max_size=7,
)


@given(headers=PAIRS, retry=st.booleans())
def test_whatever_is_written_other_headers_stay(headers: Sequence[Pair], *, retry: bool) -> None:
    found = believed(headers, retry=retry)
    ours = DELIVERY | {HOPS}
    assert [each for each in found if each[0] not in ours] == [
        each for each in headers if each[0] not in ours
    ]
