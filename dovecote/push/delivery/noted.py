"""Note what the requests of a subscription came to: counts, durations, and the last outcomes."""

from collections import deque

from dovecote.push.delivery.answers import named, why
from dovecote.push.delivery.sending import Sending
from dovecote.push.metrics import SubscriptionMetrics
from dovecote.push.rules.outcomes import Outcomes
from dovecote.push.rules.pacing.minute import LastMinute
from dovecote.push.rules.sending.ports import AttemptReport, Book, Outcome
from dovecote.push.rules.sending.verdict import Answered
from dovecote.push.rules.sending.verdict import Outcome as Answering

DETAIL_CHARACTERS = 500
"""The most characters of an id, a key or an answer that are noted."""
_RECENT = 512


class Noted:
    """Used on one loop; other threads may read."""

    def __init__(self, subscription: str, numbers: SubscriptionMetrics, book: Book) -> None:
        self._subscription, self._numbers, self._book = subscription, numbers, book
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self.minute, self.outcomes = LastMinute(), Outcomes()
        self.delivered = self.failed = self.dead = 0

    def add(
        self, attempt: Sending, told: Outcome, outcome: Answering, *, now: float, detail: str
    ) -> None:
        """Note an attempt that ended `now`; one that only came too early shows nothing."""
        record, seconds = attempt.record, now - attempt.began
        if told == "delivered":
            self.delivered += 1
            self._recent.append(seconds)
            self.outcomes.add(now, "")
        elif told != "limited":
            self.failed += 1
            self.outcomes.add(now, why(outcome))
        self._numbers.attempted(told, seconds)
        self.minute.add(now, named(outcome), dead=told == "dead")
        key = record.key
        # As the class's own constructor, which takes four times as long.
        self._book.attempted(
            tuple.__new__(
                AttemptReport,
                (
                    self._subscription,
                    attempt.event[:DETAIL_CHARACTERS],
                    record.topic,
                    record.partition,
                    record.offset,
                    None if key is None else _shown(key),
                    attempt.number,
                    attempt.at,
                    seconds,
                    outcome.status if isinstance(outcome, Answered) else None,
                    told,
                    detail,
                ),
            )
        )

    def percentiles(self) -> tuple[float | None, float | None]:
        """Return p50 and p99 of recent requests, in milliseconds."""
        recent = sorted(self._recent.copy())
        if not recent:
            return None, None
        return tuple(  # type: ignore[return-value]  # two of them
            round(recent[int(share * (len(recent) - 1))] * 1000, 2) for share in (0.5, 0.99)
        )


def _shown(key: bytes) -> str:
    return key[:DETAIL_CHARACTERS].decode(errors="backslashreplace")
