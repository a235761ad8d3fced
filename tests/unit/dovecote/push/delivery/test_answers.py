"""Answers are read once for equal headers."""

from dovecote.push.delivery.answers import Answers
from dovecote.push.rules.sending.answer import Answer


def test_each_answer_is_read_although_its_headers_are_those_of_the_one_before() -> None:
    answers, headers = Answers(), {"retry-after": "5"}
    assert answers.read(Answer(204, headers))[0].status == 204
    assert answers.read(Answer(429, headers))[0] == (429, "5", None, None)
    outcome, limits = answers.read(Answer(429, {"ratelimit": "limit=10, remaining=0, reset=7"}))
    assert (outcome.reset, limits.spent) == ("7", 7)
    assert answers.read(Answer(429, headers))[0].reset is None
