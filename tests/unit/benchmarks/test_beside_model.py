"""The right results that contenders are held to, and how theirs differ."""

from benchmarks.beside.model import closed, differences, firsts, overtaken, sessions


def test_a_session_ends_with_a_gap_that_is_longer_than_allowed() -> None:
    found = sessions({b"a": [30, 0, 10, 20, 31], b"b": [7]}, gap=10)
    assert found == {(b"a", 0): (0, 10, 20, 30, 31), (b"b", 7): (7,)}
    assert sessions({b"a": [0, 11]}, gap=10) == {(b"a", 0): (0,), (b"a", 11): (11,)}


def test_a_session_is_closed_by_a_later_record_of_its_own_key() -> None:
    all_ = sessions({b"a": [0, 16], b"b": [0, 15], b"c": [3]}, gap=10)
    assert closed(all_, ahead=15) == {(b"a", 0): (0,)}


def test_the_first_event_of_a_key_is_found_in_each_round() -> None:
    events = [(b"a", 0), (b"a", 0), (b"b", 1), (b"a", 2), (b"a", 4)]
    assert firsts(events, 4) == {(b"a", 0): 0, (b"b", 0): 1, (b"a", 1): 4}


def test_what_is_written_as_it_should_be_differs_in_nothing() -> None:
    assert differences({"a": 1, "b": 2}, [("b", 2), ("a", 1)]) == (0, 0, 0)


def test_what_is_lost_repeated_or_wrong_is_counted() -> None:
    written = [("a", 1), ("a", 1), ("a", 1), ("b", 3), ("stranger", 1)]
    found = differences({"a": 1, "b": 2, "c": 3}, written)
    assert (found.lost, found.repeated, found.wrong) == (1, 2, 2)


def test_a_record_that_came_before_the_one_before_it_of_its_key_has_overtaken_it() -> None:
    assert overtaken([1.0, 1.5, 2.0, 2.5], keys=2) == 0
    assert overtaken([3.0, 1.5, 2.0, 2.5], keys=2) == 1


def test_a_record_that_never_came_has_overtaken_nothing() -> None:
    assert overtaken([3.0, 1.0, 0.0, 2.0], keys=2) == 0
