from datetime import timedelta

from dedup.retries.aside import Aside, Held, HoldInPlace
from dedup.rules.policies.results import Again, Dead, Retry
from dedup.rules.record import Record

RECORD = Record("orders", 0, 1, 0, b"k", b"{}")


def waits(aside: Aside, result: Again | Dead | Retry, attempts: range) -> list[timedelta]:
    answers = [aside.place(RECORD, result, attempt) for attempt in attempts]
    return [answer.after for answer in answers if isinstance(answer, Held)]


def test_without_a_place_to_go_a_record_is_held_ever_longer_up_to_a_ceiling() -> None:
    aside = HoldInPlace(timedelta(seconds=1), timedelta(seconds=5))
    for result in (Retry("no"), Dead("never")):
        assert [wait.seconds for wait in waits(aside, result, range(1, 6))] == [1, 2, 4, 5, 5]
    assert waits(aside, Retry("no"), range(10_000, 10_001)) == [timedelta(seconds=5)]


def test_what_a_handler_says_of_the_wait_is_taken() -> None:
    aside = HoldInPlace()
    hour = timedelta(hours=1)
    assert waits(aside, Again(hour), range(1, 3)) == [hour, hour]
    assert waits(aside, Retry("no", hour), range(1, 3)) == [hour, hour]
