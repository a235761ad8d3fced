"""A history that is no number, or that no table takes, holds no offset back."""

from datetime import timedelta

import pytest

from dedup.retries.aside import Held, Placed
from dedup.retries.backoff import Backoff
from dedup.retries.copies import Copy
from dedup.retries.held_states import Forgetful, NotKept
from dedup.retries.plan import Plan
from dedup.rules.policies.results import Again, Dead, Retry
from dedup.rules.record import Record
from dedup.serving.retries import Retries
from outbox.envelope import ATTEMPT, ERROR, ID, ORIGIN, ROUND, Delivery, Pair

BACKOFF = Backoff(base=timedelta(seconds=8), max_attempts=3)


class Sent(list[Copy]):
    def send(self, topic: str, copy: Copy) -> None:
        assert topic == "dead"
        self.append(copy)


class Refusing(Forgetful):
    def keep(self, record: Record, state: Delivery) -> None:
        msg = f"{record.place} at {state.attempt}: integer out of range"
        raise NotKept(msg)


def record(*headers: Pair) -> Record:
    return Record("orders", 3, 44, 1_700_000_000_000, b"k", b"{}", [(ID, b"e1"), *headers])


@pytest.mark.parametrize("result", [Again(timedelta(0)), Retry("down")])
@pytest.mark.parametrize("name", [ATTEMPT, ROUND])
@pytest.mark.parametrize("number", [b"-3000000000", b"2147483647", b"9" * 5_000])
def test_a_number_out_of_range_makes_a_dead_letter(
    result: Again | Retry, name: str, number: bytes
) -> None:
    sent = Sent()
    retries = Retries(Plan(patience=BACKOFF, dead_letters="dead"), sent)
    answer = retries.place(record((name, number), (ORIGIN, b"orders/3/1")), result, 1)
    assert answer == Placed("dead_letter")
    assert name.encode() in (dict(sent[0].headers)[ERROR] or b"")


@pytest.mark.parametrize("result", [Again(timedelta(0)), Retry("down")])
def test_a_history_that_no_table_takes_makes_a_dead_letter(result: Again | Retry) -> None:
    sent = Sent()
    retries = Retries(Plan(patience=BACKOFF, dead_letters="dead"), sent, states=Refusing())
    assert retries.place(record(), result, 1) == Placed("dead_letter")
    assert b"integer out of range; before that: " in (dict(sent[0].headers)[ERROR] or b"")


def test_without_a_topic_for_dead_letters_it_stays_and_is_tried_again_later() -> None:
    retries = Retries(Plan(patience=BACKOFF), Sent(), states=Refusing())
    answer = retries.place(record(), Dead("bad"), 1)
    assert isinstance(answer, Held)
    assert answer.given_up
    assert answer.after == timedelta(minutes=5)
