"""Read what an endpoint's answers say, and put it in words."""

from collections.abc import Mapping

from dedup.rules.policies.wording import plain
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.quota import Quota, quota
from dovecote.push.rules.sending.verdict import Answered, NotAnswered, Outcome, described


class Answers:
    """Reads answers; most have the headers of the one before, and so the same object."""

    def __init__(self) -> None:
        self._headers: Mapping[str, str] | None = None
        self._told = Answered(0), Quota()

    def read(self, answer: Answer) -> tuple[Answered, Quota]:
        """Return the outcome, and the endpoint's own numbers."""
        if answer.headers is not self._headers or answer.status != self._told[0].status:
            limits = quota(answer.headers)
            self._headers, self._told = answer.headers, (_answered(answer, limits), limits)
        return self._told


def _answered(answer: Answer, limits: Quota) -> Answered:
    headers = answer.headers
    return Answered(
        answer.status,
        headers.get("retry-after"),
        headers.get("date"),
        headers.get("ratelimit-reset")
        or headers.get("x-ratelimit-reset")
        or (None if limits.spent is None else str(limits.spent)),
    )


def broken(outcome: Outcome, detail: str) -> str:
    """Return a failure in words, with the beginning of the answer."""
    if isinstance(outcome, NotAnswered):
        return plain(outcome.error)
    # The answer is a stranger's text, and this goes into the log.
    told = described(outcome.status)
    return f"{told} ({plain(detail)})" if detail else told


def why(outcome: Outcome) -> str:
    """Return why a request failed, in a few words."""
    if isinstance(outcome, NotAnswered):
        return plain(outcome.error)
    return described(outcome.status).removeprefix("the endpoint answered ")


def named(outcome: Outcome) -> str:
    """Return the status, or `no answer`."""
    return str(outcome.status) if isinstance(outcome, Answered) else "no answer"
