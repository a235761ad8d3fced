"""Ready means progressing or nothing to do; otherwise the reason is named."""

from dovecote.process.states import State
from relay.health import Health


def test_a_relay_that_has_just_started_is_ready_to_be_waited_for() -> None:
    report = Health().ready()
    assert (report.ok, report.role) == (True, "starting")


def test_progress_makes_ready() -> None:
    health = Health()
    for role in ("active", "standby"):
        health.progressed(role)
        assert health.ready().ok
        assert health.role() == health.ready().role == role


def test_a_failure_stands_until_something_progresses() -> None:
    health = Health()
    health.progressed("active")
    health.failing("outage: Kafka: away")
    assert (health.ready().ok, health.ready().reason) == (False, "outage: Kafka: away")
    health.failing("outage: Postgres: away")
    assert health.ready().reason == "outage: Postgres: away"
    assert health.ready().role == "active"
    health.progressed("active")
    assert health.ready().ok


def test_without_progress_for_too_long_it_is_not_ready() -> None:
    health = Health(stall_after=-1.0)
    health.progressed("active")
    report = health.ready()
    assert not report.ok
    assert "no progress for" in report.reason


def test_a_stopped_relay_is_not_ready() -> None:
    health = Health()
    health.progressed("stopped")
    assert not health.ready().ok


def test_what_was_published_before_all_was_well_counts() -> None:
    health = Health()
    health.published()  # the first batch, just before it is known that all is well
    health.progressed("active")
    assert health.ready().state is State.WORKING
    health.progressed("standby")
    health.progressed("active")
    assert health.ready().state is State.IDLE
