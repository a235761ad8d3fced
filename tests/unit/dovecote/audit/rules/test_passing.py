"""Relays have passed what was committed before the place that they confirmed."""

from dovecote.audit.rules.passing import passed


def test_an_event_is_passed_once_a_place_after_its_commit_is_confirmed() -> None:
    marks = [(3, 100), (7, 200), (9, 300)]
    assert passed(marks, 100) == (marks, None)
    assert passed(marks, 101) == (marks[1:], 3)
    assert passed(marks, 1_000) == ([], 9)
    assert passed(marks, None) == (marks, None)


def test_of_too_many_marks_every_second_stays_and_the_last() -> None:
    marks = [(n, n) for n in range(1, 1_602)]
    thin, _ = passed(marks, 0)
    assert len(thin) == 801
    assert thin[-1] == marks[-1]
    # An event whose mark is gone is passed with the next one, and never before.
    assert passed(thin, 2)[1] is None
