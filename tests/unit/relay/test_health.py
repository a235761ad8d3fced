"""Ready means progressing or nothing to do; otherwise the reason is named."""

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
