import pytest

from spark_jobs.query.metrics import Recent


def test_the_rate_is_of_the_time_since_the_first_batch_and_of_a_minute_at_most() -> None:
    recent = Recent()
    assert recent.rate(0.0) == 0.0
    recent.add(100.0, 500)
    assert recent.rate(100.2) == 500.0  # over one second at least
    recent.add(110.0, 500)
    assert recent.rate(120.0) == 50.0
    recent.add(150.0, 100)

    assert recent.rate(165.0) == pytest.approx(600 / 60)
    assert recent.rate(211.0) == 0.0
