"""A query is green only if it finished a batch, or found nothing to do, within the last minute."""

from typing import Any

import pytest

from dovecote.process.states import State
from spark_jobs.query.condition import QuerySeen, condition


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({"role": "starting"}, State.STARTING, "no batch was finished yet"),
        ({"role": "starting", "progressed": 301.0}, State.STALLED, "for 301 s"),
        ({"role": "starting", "trouble": "Kafka: away"}, State.FAILING, "Kafka: away"),
        ({"role": "stopped", "trouble": "Kafka: away"}, State.DRAINING, "stopped"),
        ({"progressed": 301.0, "next": "; from 7 on"}, State.STALLED, "for 301 s; from 7 on"),
        ({"progressed": 301.0, "batch": 301.0}, State.STALLED, "no batch was finished"),
        ({"progressed": 301.0, "trouble": "Kafka: away"}, State.STALLED, "; Kafka: away"),
        ({"trouble": "Kafka: away", "worked": 1.0}, State.FAILING, "Kafka: away"),
        ({"role": "starting", "restarts": "3 runs failed"}, State.FAILING, "3 runs failed"),
        ({"restarts": "3 runs failed", "worked": 1.0}, State.FAILING, "3 runs failed"),
        ({"restarts": "3 runs", "trouble": "Kafka: away"}, State.FAILING, "Kafka: away"),
        ({"held": "a/0 is held back", "worked": 1.0}, State.STALLED, "but a/0 is held back"),
        ({"standing": "a/0 has stood"}, State.STALLED, "but a/0 has stood"),
        ({"lag_rows": 5, "lag_seconds": 301.0, "worked": 1.0}, State.BEHIND, "5 records wait"),
        ({"lag_rows": 5, "lag_seconds": 299.0, "worked": 1.0}, State.WORKING, "progressing"),
        ({"worked": 59.0}, State.WORKING, "progressing"),
        ({"worked": 90.0, "progressed": 2.0}, State.IDLE, "progressing"),
        ({"worked": 90.0, "pause": 60.0}, State.WORKING, "progressing"),
        ({}, State.IDLE, "progressing"),
        ({"progressed": 61.0}, State.UNKNOWN, "not heard for 61 s"),
        ({"progressed": 61.0, "pause": 10.0}, State.IDLE, "progressing"),
        ({"progressed": 200.0, "batch": 199.0}, State.WORKING, "at work for 199 s"),
    ],
)
def test_a_query_says_how_it_is(seen: dict[str, Any], state: State, words: str) -> None:
    found, reason = condition(QuerySeen(**{"role": "running", "stall_after": 300.0, **seen}))
    assert found is state
    assert words in reason
