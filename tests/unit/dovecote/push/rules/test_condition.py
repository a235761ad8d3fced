"""A subscription is green only if it delivered, or had nothing to deliver, a moment ago."""

from typing import Any

import pytest

from dovecote.process.states import State
from dovecote.push.rules.condition import (
    Condition,
    DeliverySeen,
    PushSeen,
    SubscriptionSeen,
    delivery,
    push,
    subscription,
)
from dovecote.push.rules.outcomes import Outcomes, Recently

NOW = 1_000_000.0
REFUSED = Recently(100, 100, "401 Unauthorized", 100, 100)


@pytest.mark.parametrize(
    ("seen", "state", "reason"),
    [
        ({}, State.IDLE, "everything is delivered"),
        ({"delivered": 59.0}, State.WORKING, "records are delivered"),
        ({"delivered": 61.0}, State.IDLE, "everything is delivered"),
        ({"in_flight": 1, "lag": 1}, State.WORKING, "requests wait for their answers"),
        ({"lag": 3, "delivered": 61.0}, State.BEHIND, "3 records wait, and none is being sent"),
        ({"consumer": State.STANDBY}, State.STANDBY, "other processes have all partitions"),
        ({"recently": REFUSED}, State.FAILING, "401 Unauthorized, 100 of the last 100"),
        (
            {"recently": REFUSED, "trouble": "the circuit is open: 401"},
            State.FAILING,
            "401 Unauthorized, 100 of the last 100; the circuit is open: 401",
        ),
        (
            {"recently": Recently(1, 1, "no answer", 1, 1)},
            State.FAILING,
            "no answer, 1 of the last 1",
        ),
        (
            {"recently": Recently(9, 1, "no answer", 1, 1, delivered=5.0), "delivered": 5.0},
            State.WORKING,
            "records are delivered",
        ),
        (
            {"recently": Recently(9, 2, "no answer", 2, 2, delivered=5.0), "delivered": 5.0},
            State.FAILING,
            "no answer, 2 of the last 9",
        ),
        (
            {"recently": Recently(10, 5, "500 x", 4, 0, delivered=1.0), "delivered": 1.0},
            State.FAILING,
            "500 x, 4 of the last 10",
        ),
        ({"trouble": "no handshake"}, State.FAILING, "no handshake"),
        (
            {"consumer": State.FAILING, "consumer_reason": "no Kafka broker answers"},
            State.FAILING,
            "no Kafka broker answers",
        ),
        (
            {"consumer": State.STALLED, "consumer_reason": "held back", "delivered": 1.0},
            State.STALLED,
            "held back",
        ),
        (
            {"consumer": State.DRAINING, "consumer_reason": "stopped", "recently": REFUSED},
            State.DRAINING,
            "stopped",
        ),
    ],
)
def test_a_delivery_says_how_it_is(seen: dict[str, Any], state: State, reason: str) -> None:
    found = delivery(DeliverySeen(**{"consumer": State.IDLE, **seen}), NOW)
    assert (found.state, found.reason) == (state, reason)


def test_since_when_it_fails_is_said() -> None:
    seen = DeliverySeen(consumer=State.IDLE, recently=REFUSED, failing=90.0)
    assert delivery(seen, NOW).since == NOW - 90


def one(state: State) -> Condition:
    return Condition(state, f"is {state}")


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({"status": "paused", "reason": "by an operator"}, State.PAUSED, "by an operator"),
        ({"status": "disabled", "reason": "410 Gone"}, State.FAILING, "disabled: 410 Gone"),
        ({"status": "disabled", "reports": [one(State.WORKING)]}, State.FAILING, "disabled"),
        ({"since": NOW - 5}, State.STARTING, "no process has taken it yet"),
        ({"since": NOW - 61}, State.UNKNOWN, "no process reports"),
        ({}, State.UNKNOWN, "no process reports"),
        ({"reports": [one(State.STANDBY), one(State.WORKING)]}, State.WORKING, "is working"),
        ({"reports": [one(State.STANDBY), one(State.IDLE)]}, State.IDLE, "is idle"),
        ({"reports": [one(State.STANDBY)]}, State.STALLED, "no process has its partitions"),
        ({"reports": [one(State.WORKING), one(State.FAILING)]}, State.FAILING, "is failing"),
    ],
)
def test_a_subscription_is_as_its_processes_say(
    seen: dict[str, Any], state: State, words: str
) -> None:
    found = subscription(SubscriptionSeen(**{"status": "active", **seen}), NOW)
    assert found.state is state
    assert words in found.reason


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({}, State.IDLE, "nothing to deliver"),
        ({"brokers": [("a", 3.0, "")]}, State.IDLE, "nothing to deliver"),
        ({"starting": True, "failure": "x"}, State.STARTING, "starting"),
        ({"ending": True, "failure": "x"}, State.DRAINING, "in flight"),
        ({"failure": "Postgres: away"}, State.FAILING, "Postgres: away"),
        ({"unrecorded": "no table"}, State.FAILING, "attempts are not recorded: no table"),
        ({"followed": 61.0}, State.UNKNOWN, "Postgres was not heard for 61 s"),
        ({"brokers": [("a", 3.0, ""), ("b", None, "down")]}, State.FAILING, "broker 'b': down"),
        ({"brokers": [("a", None, "")]}, State.STARTING, "broker 'a' has not answered yet"),
        ({"brokers": [("a", 61.0, "")]}, State.UNKNOWN, "broker 'a' was not heard for 61 s"),
        ({"subscriptions": [State.IDLE]}, State.IDLE, "nothing to deliver"),
        ({"subscriptions": [State.WORKING, State.IDLE]}, State.WORKING, "delivered"),
        ({"subscriptions": [State.WORKING, State.STALLED]}, State.WORKING, "1 of 2"),
        ({"subscriptions": [State.IDLE, State.FAILING]}, State.IDLE, "1 of 2 subscriptions fail"),
        ({"subscriptions": [State.FAILING] * 2}, State.FAILING, "2 of 2 subscriptions fail"),
    ],
)
def test_a_process_says_how_it_is(seen: dict[str, Any], state: State, words: str) -> None:
    found, reason = push(PushSeen(**seen))
    assert found is state
    assert words in reason


def test_the_last_hundred_outcomes_count() -> None:
    outcomes = Outcomes()
    assert outcomes.recently(0.0) == Recently()
    outcomes.add(1.0, "")
    for at in range(150):
        outcomes.add(10.0 + at, "401 Unauthorized")
    assert outcomes.recently(160.0) == Recently(
        100, 100, "401 Unauthorized", 100, 150, since=10.0, delivered=1.0
    )
    outcomes.add(500.0, "")
    found = outcomes.recently(500.0)
    assert (found.failed, found.in_a_row, found.since, found.delivered) == (0, 0, None, 500.0)


def test_an_outcome_counts_for_a_minute_and_a_row_of_failures_until_a_success() -> None:
    outcomes = Outcomes()
    for at in range(20):
        outcomes.add(float(at), "401 Unauthorized")
    assert outcomes.recently(10_000.0).failed == 20
    outcomes.add(20.0, "")
    assert outcomes.recently(21.0).failed == 20
    found = outcomes.recently(79.5)
    assert (found.total, found.failed, found.why) == (1, 0, "")
    assert outcomes.recently(10_000.0).total == 0
