"""The last minute's outcomes: what came in it, and nothing that came before."""

from dovecote.push.rules.pacing.minute import LastMinute, listed


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    minute = LastMinute()
    for now in range(120):
        minute.add(float(now), "401" if now < 100 else "204")
    assert minute.outcomes(119.5) == {"401": 40, "204": 20}
    assert minute.outcomes(500.0) == {}


def test_dead_letters_are_counted_by_what_the_endpoint_answered() -> None:
    minute = LastMinute()
    minute.add(0.0, "422", dead=True)
    minute.add(0.1, "no answer")
    minute.add(0.2, "422", dead=True)
    assert minute.dead(1.0) == {"422": 2}
    assert minute.outcomes(1.0) == {"422": 2, "no answer": 1}


def test_the_most_frequent_outcome_is_said_first() -> None:
    minute = LastMinute()
    for outcome in ("no answer", "401", "401"):
        minute.add(0.0, outcome)
    assert listed(minute.outcomes(0.0)) == "2 x 401, 1 x no answer"
