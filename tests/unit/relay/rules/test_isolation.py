"""A refused event is found, whatever it was sent with."""

from relay.rules.isolation import Isolation

BATCH_SIZE = "1000000"


def test_events_near_a_refusal_are_sent_one_by_one_until_one_batch_passes() -> None:
    isolation = Isolation(20_000)
    isolation.searches(before=3, request_bytes=5_000)
    assert isolation.most == 1_000
    assert isolation.properties(BATCH_SIZE) == {"batch.num.messages": "1"}
    isolation.found()
    assert isolation.one_by_one, "there may be more of them"
    assert isolation.has_changed()
    assert (isolation.most, isolation.properties(BATCH_SIZE)) == (20_000, {})


def test_what_is_far_before_a_refusal_goes_together() -> None:
    isolation = Isolation(20_000)
    isolation.searches(before=15_000, request_bytes=5_000)
    assert (isolation.most, isolation.one_by_one) == (15_000, False)
    assert isolation.has_changed()
    assert (isolation.most, isolation.one_by_one) == (1_000, True)


def test_when_nobody_is_to_blame_requests_become_smaller() -> None:
    isolation = Isolation(500)
    isolation.searches(before=3, request_bytes=900_000)
    assert isolation.most == 500
    assert isolation.has_changed()
    assert isolation.properties(BATCH_SIZE) == {"batch.size": "450000"}
    isolation.searches(before=0, request_bytes=450_000)
    isolation.has_changed()
    assert isolation.properties(BATCH_SIZE) == {"batch.size": "225000"}
    assert isolation.properties("100000") == {"batch.size": "100000"}
