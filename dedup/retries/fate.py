"""Decide the fate of a record that is not done: another attempt later, or a dead letter."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from dedup.retries.backoff import Failure, Patience
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again, Dead, Retry
from outbox.envelope import Delivery

_LONGEST_WAIT = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class Later:
    """The record is tried again."""

    due: int
    """Not before this, in milliseconds since 1970."""

    error: str | None
    """Why; None: it succeeded, and asked for another round."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Nothing tries it again by itself."""

    error: str


Fate: TypeAlias = Later | DeadLetter


def decide(
    result: Again | Retry | Dead,
    *,
    identity: Identity,
    delivery: Delivery,
    now: int,
    patience: Patience,
) -> Fate:
    """
    Return the fate of a record whose handler returned `result`, at `now` (in milliseconds).

    `Again` burns no attempt, and no number of rounds makes a dead letter.
    """
    match result:
        case Again(after):
            return Later(_due(now, after), None)
        case Dead(error):
            return DeadLetter(error)
        case Retry(error, after):
            began = delivery.first_seen if delivery.first_seen is not None else now
            wait = patience.after(
                Failure(
                    identity=identity,
                    attempt=delivery.attempt,
                    seconds=max(0, now - began) / 1000,
                    error=error,
                )
            )
            if wait is None:
                return DeadLetter(error)
            # The handler's wait takes precedence, but does not change the number of attempts.
            wait = wait if after is None else after
            return Later(_due(now, wait), error)


def _due(now: int, wait: timedelta) -> int:
    # The longest wait that there is would overflow wherever it is added to a time.
    return now + round(min(wait, _LONGEST_WAIT).total_seconds() * 1000)
