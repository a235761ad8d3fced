"""A handler is tried without a broker, and its records fare as they do in a consumer."""

from datetime import timedelta

import pytest

from dedup.retries.backoff import Backoff
from dedup.retries.plan import Plan, Tier
from dedup.rules.policies.results import Again, Dead, Result, Retry, Skip, Unavailable
from dedup.testing import Trial
from outbox import envelope
from outbox.event import Event

BACKOFF = Backoff(base=timedelta(seconds=10), ceiling=timedelta(minutes=1), max_attempts=3)
HOLDING = Plan(patience=BACKOFF, dead_letters="dead")
CIRCULATING = Plan(
    patience=BACKOFF,
    dead_letters="dead",
    tiers=[Tier("retry"), Tier("retry.later", timedelta(seconds=15))],
)


def order(id_: str, key: str = "k", **value: object) -> Event:
    return Event(topic="orders", key=key, type="Placed", value=value, id=id_)


class Effects:
    """A handler that answers as the events ask it to, and remembers their order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails: set[str] = set()
        self.answer: Result | Exception = Retry("down")

    def __call__(self, event: Event) -> Result | None:
        self.seen.append(event.id)
        if event.id not in self.fails:
            return None
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_each_event_is_handled_once_and_a_copy_is_skipped_with_its_reason() -> None:
    effects = Effects()
    trial = Trial(effects)

    trial.feed(order("e1"), order("e1"), order("e2"))

    assert effects.seen == ["e1", "e2"]
    assert trial.ids("handled") == ["e1", "e2"]
    (skipped,) = (outcome for outcome in trial.outcomes if outcome.what == "skipped")
    assert skipped.reason == "duplicate of e1"


@pytest.mark.parametrize(
    ("policy", "handled"),
    [("latest", ["e3"]), ("first_match", ["e1"]), ("every", ["e1", "e2", "e3"])],
)
def test_a_policy_decides_over_each_batch(policy: str, handled: list[str]) -> None:
    trial = Trial(Effects(), policy=policy)  # type: ignore[arg-type]  # one of the names

    trial.feed(order("e1"), order("e2"), order("e3"))

    assert trial.ids("handled") == handled


def test_a_filter_is_the_settings_expression() -> None:
    trial = Trial(Effects(), filter="value.amount > 1")

    trial.feed(order("e1", amount=1), order("e2", amount=2))

    assert (trial.ids("skipped"), trial.ids("handled")) == (["e1"], ["e2"])


def test_a_failure_holds_its_key_until_it_is_done_and_others_go_on() -> None:
    effects = Effects()
    effects.fails = {"a1"}
    trial = Trial(effects, plan=HOLDING)

    trial.feed(order("a1", "a"), order("a2", "a"), order("b1", "b"))
    assert (trial.ids("held"), trial.ids("handled")) == (["a1"], ["b1"])

    effects.fails.clear()
    assert trial.wait(timedelta(seconds=1)) == []
    trial.wait(timedelta(seconds=10))
    assert trial.ids("handled") == ["b1", "a1", "a2"]


def test_the_last_attempt_makes_a_dead_letter_and_its_key_goes_on() -> None:
    effects = Effects()
    effects.fails = {"a1"}
    trial = Trial(effects, plan=HOLDING)

    trial.feed(order("a1", "a"), order("a2", "a"))
    trial.wait(timedelta(hours=1))

    assert effects.seen == ["a1", "a1", "a1", "a2"]
    (letter,) = trial.dead_letters
    assert (letter.topic, letter.event.id, letter.event.value) == ("dead", "a1", {})
    assert envelope.delivery(letter).error == "down"


def test_with_retry_topics_the_key_goes_on_and_the_record_comes_back_when_it_is_due() -> None:
    effects = Effects()
    effects.fails = {"a1"}
    trial = Trial(effects, plan=CIRCULATING)

    trial.feed(order("a1", "a"), order("a2", "a"))
    assert effects.seen == ["a1", "a2"]
    assert trial.ids("retry") == ["a1"]

    effects.fails.clear()
    trial.wait(timedelta(seconds=10))
    assert effects.seen == ["a1", "a2", "a1"]
    last = trial.outcomes[-1]
    assert (last.what, last.record.topic) == ("handled", "retry")
    assert envelope.delivery(last.record).round == 1


def test_retries_end_among_the_dead_letters_with_each_attempt_counted_once() -> None:
    effects = Effects()
    effects.fails = {"a1"}
    trial = Trial(effects, plan=CIRCULATING)

    trial.feed(order("a1"))
    trial.wait(timedelta(hours=1))

    assert effects.seen == ["a1"] * 3
    assert envelope.delivery(trial.dead_letters[0]).attempt == 3
    assert envelope.delivery(trial.dead_letters[0]).origin == "orders/0/0"


@pytest.mark.parametrize("plan", [HOLDING, CIRCULATING])
def test_another_round_is_no_failure_however_often(plan: Plan) -> None:
    effects = Effects()
    effects.fails, effects.answer = {"a1"}, Again(timedelta(seconds=5))
    trial = Trial(effects, plan=plan)

    trial.feed(order("a1"))
    trial.wait(timedelta(seconds=52))

    assert len(effects.seen) == 11
    assert trial.dead_letters == []


def test_an_outage_burns_no_attempt_and_holds_the_order() -> None:
    effects = Effects()
    effects.fails, effects.answer = {"a1"}, Unavailable("the bank is away")
    trial = Trial(effects, plan=CIRCULATING)

    trial.feed(order("a1", "a"), order("a2", "a"), order("b1", "b"))
    trial.wait(timedelta(minutes=5))
    assert trial.dead_letters == []
    assert set(trial.ids("waits")) == {"a1"}
    assert trial.ids("handled") == ["b1"]

    effects.fails.clear()
    trial.wait(timedelta(seconds=1))
    assert trial.ids("handled") == ["b1", "a1", "a2"]


def test_poison_is_a_dead_letter_at_once_and_its_key_goes_on() -> None:
    trial = Trial(Effects(), plan=HOLDING)
    poison = Event(topic="orders", key="a", type="Placed", value=b"{no json", id="a1")

    trial.feed(poison, order("a2", "a"))

    assert (trial.ids("dead_letter"), trial.ids("handled")) == (["a1"], ["a2"])
    assert trial.dead_letters[0].value == b"{no json"


def test_a_handler_may_skip_or_give_up() -> None:
    effects = Effects()
    effects.fails, effects.answer = {"e1"}, Skip("not ours")
    trial = Trial(effects, plan=HOLDING)
    (skipped,) = trial.feed(order("e1"))
    assert (skipped.what, skipped.reason) == ("skipped", "handler: not ours")

    effects.answer = Dead("closed")
    (dead,) = trial.feed(order("e1"))
    assert (dead.what, dead.reason) == ("dead_letter", "closed")


def test_an_async_handler_is_run_to_its_end() -> None:
    seen: list[str] = []

    async def handle(event: Event) -> None:
        seen.append(event.id)

    Trial(handle).feed(order("e1"), order("e2"))

    assert seen == ["e1", "e2"]


def test_of_a_key_that_was_held_the_first_match_is_one_all_the_same() -> None:
    effects = Effects()
    effects.fails, effects.answer = {"e1"}, Unavailable("the database")
    trial = Trial(effects, policy="first_match", plan=CIRCULATING)
    trial.feed(order("e1"), order("e2"), order("e3"))
    assert effects.seen == ["e1"]

    effects.fails = set()
    trial.wait(timedelta(minutes=1))

    assert trial.ids("handled") == ["e1"]
    assert trial.ids("skipped") == ["e2", "e3"]
    assert set(effects.seen) == {"e1"}


def test_where_the_record_that_was_held_fails_the_next_one_may_win() -> None:
    effects = Effects()
    effects.fails, effects.answer = {"e1"}, Unavailable("the database")
    trial = Trial(effects, policy="first_match", plan=CIRCULATING)
    trial.feed(order("e1"), order("e2"), order("e3"))

    effects.answer = Dead("no")
    trial.wait(timedelta(minutes=1))

    assert trial.ids("dead_letter") == ["e1"]
    assert trial.ids("handled") == ["e2"]
    assert trial.ids("skipped") == ["e3"]
