"""Rates come from two samples, and what moves is known from what waits."""

from dovecote.console.rules.motion import Count, Memory, followed, motion


def test_a_rate_is_that_of_the_last_seconds() -> None:
    track = followed(None, Count(0.0, 100))
    assert motion(track, 0.0).rate is None
    track = followed(track, Count(2.0, 120))
    assert motion(track, 2.0).rate == 10.0
    assert motion(track, 12.0).moved == 10.0


def test_a_count_that_fell_began_anew_and_has_no_rate() -> None:
    track = followed(followed(None, Count(0.0, 100)), Count(2.0, 3))
    assert motion(track, 2.0).rate is None


def test_what_waits_and_does_not_move_stands_still() -> None:
    track = followed(None, Count(0.0, 5, waits=False))
    track = followed(track, Count(10.0, 5, waits=True))
    track = followed(track, Count(80.0, 5, waits=True))
    assert motion(track, 80.0).still == 80.0
    track = followed(track, Count(82.0, 6, waits=True))
    assert motion(track, 82.0).still == 0.0
    track = followed(track, Count(84.0, 6, waits=False))
    assert motion(track, 84.0).still is None


def test_parts_that_are_gone_are_forgotten_and_states_keep_their_beginning() -> None:
    memory = Memory()
    memory.settle({"a": "idle"}, 1.0)
    memory.settle({"a": "idle", "b": "working"}, 2.0)
    assert (memory.since("a", 9.0), memory.since("b", 9.0)) == (1.0, 2.0)
    memory.settle({"a": "failing"}, 3.0)
    assert (memory.since("a", 9.0), memory.since("b", 9.0)) == (3.0, 9.0)


def test_after_the_clock_was_set_back_what_stands_still_is_seen_to() -> None:
    track = followed(followed(None, Count(5_000.0, 5)), Count(5_002.0, 25, waits=True))
    for at in range(1_400, 1_500, 2):
        track = followed(track, Count(float(at), 25, waits=True))
    found = motion(track, 1_498.0)
    assert (found.rate, found.still, found.moved) == (0.0, 98.0, None)


def test_no_state_has_begun_after_the_clock_was_set_back() -> None:
    memory = Memory()
    memory.settle({"a": "idle"}, 5_000.0)
    memory.settle({"a": "idle"}, 1_400.0)
    assert memory.since("a", 1_402.0) == 1_400.0
