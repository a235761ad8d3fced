"""A relay is green only if it published, or could have, within the last minute."""

from typing import Any

import pytest

from dovecote.process.states import State
from relay.rules.condition import OutsideSeen, RelaySeen, condition, outside

WELL: dict[str, Any] = {"role": "active", "active": 500.0, "answered": 3.0}


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({"role": "starting"}, State.STARTING, "starting"),
        ({"role": "starting", "failure": "outage: Kafka"}, State.FAILING, "outage: Kafka"),
        ({"role": "starting", "progressed": 11.0}, State.STALLED, "no progress for 11 s"),
        ({"role": "stopped"}, State.DRAINING, "stopped"),
        ({"ending": True}, State.DRAINING, "in flight"),
        ({"ending": True, "failure": "outage"}, State.DRAINING, "in flight"),
        # On standby.
        ({"role": "standby"}, State.STANDBY, "progressing"),
        ({"role": "standby", "answered": None}, State.STARTING, "not answered yet"),
        ({"role": "standby", "answered": 61.0}, State.UNKNOWN, "not heard for 61 s"),
        ({"role": "standby", "trouble": "Kafka: no right"}, State.FAILING, "no right"),
        ({"role": "standby", "failure": "outage: Postgres"}, State.FAILING, "Postgres"),
        ({"role": "standby", "progressed": 11.0}, State.STALLED, "no progress"),
        # Nothing to publish.
        ({}, State.IDLE, "progressing"),
        ({"published": 61.0}, State.IDLE, "progressing"),
        ({"answered": None}, State.STARTING, "not answered yet"),
        ({"answered": 61.0}, State.UNKNOWN, "not heard for 61 s"),
        ({"trouble": "Kafka: away"}, State.FAILING, "Kafka: away"),
        ({"failure": "fenced: another"}, State.FAILING, "fenced"),
        ({"progressed": 11.0}, State.STALLED, "no progress"),
        # Something to publish.
        ({"published": 59.0}, State.WORKING, "progressing"),
        ({"published": 59.0, "answered": None}, State.WORKING, "progressing"),
        ({"lag_rows": 1, "lag_seconds": 59.0, "published": 1.0}, State.WORKING, "progressing"),
        ({"lag_rows": 9, "lag_seconds": 61.0, "published": 1.0}, State.BEHIND, "9 events are"),
        ({"lag_rows": 1, "lag_seconds": 61.0, "published": 61.0}, State.STALLED, "doctor"),
        ({"lag_rows": 1, "lag_seconds": 61.0}, State.STALLED, "nothing was published for 500 s"),
        ({"lag_rows": 1, "lag_seconds": 61.0, "active": 5.0}, State.BEHIND, "1 event is"),
        ({"lag_bytes": 11, "warn_bytes": 10, "published": 1.0}, State.BEHIND, "11 bytes"),
        ({"lag_bytes": 11, "published": 1.0}, State.WORKING, "progressing"),
        # Parked events.
        (
            {"parked": 2, "parked_since": 5.0, "parked_why": "no topic", "published": 1.0},
            State.FAILING,
            "no topic; 2 events are parked",
        ),
        ({"parked": 2, "parked_since": 61.0, "published": 1.0}, State.BEHIND, "2 events are"),
        ({"parked": 1}, State.BEHIND, "1 event is parked"),
        ({"parked": 0, "parked_since": 5.0, "published": 1.0}, State.WORKING, "progressing"),
    ],
)
def test_a_relay_says_how_it_is(seen: dict[str, Any], state: State, words: str) -> None:
    found, reason = condition(RelaySeen(**{**WELL, **seen}))
    assert found is state
    assert words in reason


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({}, State.IDLE, "everything is published"),
        ({"lag_rows": 3, "lag_seconds": 1.0}, State.WORKING, "3 events are being published"),
        ({"lag_rows": 3, "lag_seconds": 61.0}, State.BEHIND, "the oldest for 61 s"),
        ({"lag_rows": 3, "lag_seconds": 61.0, "moved": False}, State.STALLED, "does not move"),
        ({"active": False}, State.UNKNOWN, "no relay is active"),
        ({"active": False, "lag_rows": 1, "lag_seconds": 1.0}, State.STALLED, "1 event is wait"),
        ({"active": False, "slot_lost": True}, State.FAILING, "slot is lost"),
        ({"parked": 4}, State.BEHIND, "4 events are parked"),
        ({"lag_bytes": 9, "warn_bytes": 8}, State.BEHIND, "9 bytes"),
        ({"lag_bytes": 9}, State.IDLE, "everything is published"),
    ],
)
def test_an_outbox_is_judged_from_outside(seen: dict[str, Any], state: State, words: str) -> None:
    found, reason = outside(OutsideSeen(**{"active": True, **seen}))
    assert found is state
    assert words in reason
