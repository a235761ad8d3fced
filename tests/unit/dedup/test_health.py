import pytest

from dedup.health import Health
from tests.support.waiting import until


def test_it_is_ready_once_the_group_has_it_and_as_long_as_nothing_is_in_the_way() -> None:
    health = Health()
    assert not health.ready().ok
    health.joined()
    assert health.ready().ok
    health.failing("no Kafka broker answers")
    report = health.ready()
    assert (report.ok, report.reason) == (False, "no Kafka broker answers")
    health.failing("")
    assert health.ready().ok
    health.stopped()
    assert not health.ready().ok


def test_a_consumer_that_polls_and_completes_nothing_is_not_ready() -> None:
    health = Health(stall_after=0.05)
    health.joined()

    def stalled() -> bool:
        health.polled(progressed=False)
        return "none was completed" in health.ready().reason

    until(stalled, within=5, what="that it is stalled")
    health.polled(progressed=True)
    assert health.ready().ok
    until(lambda: "not polled" in health.ready().reason, within=5, what="that it is silent")


def test_what_it_cannot_read_is_said_and_the_rest_is_ready() -> None:
    health = Health()
    health.joined()
    health.lacking = "topic 'bookings' cannot be read: there is none"
    report = health.ready()
    assert report.ok
    assert report.reason == "progressing, but topic 'bookings' cannot be read: there is none"


def test_before_the_group_has_it_what_kafka_said_is_the_reason() -> None:
    health = Health()
    health.said("JoinGroup failed: not authorized")
    assert (
        health.ready().reason == "not a member of the group yet: JoinGroup failed: not authorized"
    )
    health.joined()
    assert health.ready().reason == "progressing"


def test_a_member_that_the_group_no_longer_has_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr("dedup.health.time.monotonic", lambda: now)
    health = Health(stall_after=60)
    health.joined()
    now += 59
    health.polled(progressed=True)
    assert health.ready().ok  # members are shared out anew
    now += 2
    health.polled(progressed=True)
    assert health.ready().reason == "not a member of the group for 61 s"
    health.joined()
    assert health.ready().ok


def test_deleted_offsets_are_said() -> None:
    health = Health()
    health.joined()
    health.expired = 7
    assert health.ready().reason == "progressing, but 7 offsets were deleted before they were read"
