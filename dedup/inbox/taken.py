"""Events as a transaction has taken them, and what it means for them when it rolls back."""

from collections.abc import Iterable
from typing import Any

from dedup.rules.claim import Claim
from dedup.rules.policies.results import Dead, Result, Retry, TakenOver, Unavailable, result_of
from outbox import forks
from outbox.errors import DovecoteError, first_line
from outbox.postgres.away import (
    causes,
    is_aborted,
    is_at_fault,
    is_blameless,
    is_lost,
    over,
    says_away,
    sqlstate_of,
)

# The inbox's own code: the partition was claimed by another member.
_TAKEN = "TAKEN"


class TakenBack(Exception):
    """Rolls the transaction back, with the handler's result."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result


class Aborted(DovecoteError):
    """The handler passed over an error of its transaction, which can no longer commit anything."""


class Taken:
    """The claims under which events are taken, and the connection of their transaction."""

    __slots__ = ("_claims", "_forks", "_lost", "line", "numbers")

    def __init__(self, claims: Iterable[Claim | None]) -> None:
        self._claims = tuple(claims)
        self.numbers = [None if each is None else each.number for each in self._claims]
        """The present numbers of the claims."""
        self._lost: bool | None = None
        self._forks = forks.count
        self.line: Any = None
        """psycopg's `pgconn`, once the events are taken: the handler is called after that."""

    def __enter__(self) -> None:
        """Begin the block in which the handler is called, within its transaction."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Note whether the connection was lost meanwhile; later, its pool may have closed it."""
        forks.stay(self._forks, error)
        if error is not None:
            self._lost = is_lost(self.line)

    def finished(self, answer: object) -> Result:
        """
        Return the result that the transaction commits with; for any other, raise to roll it back.
        """
        result = result_of(answer)
        if isinstance(result, Retry | Dead):
            raise TakenBack(result)
        self.require_whole()
        return result

    def require_whole(self) -> None:
        """
        Check that the transaction can commit.

        Raises:
            Aborted: it cannot: its commit would roll it back, and say nothing.
        """
        if is_aborted(self.line):
            msg = (
                "an error aborted the handler's transaction, and the handler went on: nothing of "
                "it can be committed; let the error leave the handler, or begin a savepoint "
                "before a statement that may fail"
            )
            raise Aborted(msg)

    def answer(self, error: Exception) -> Result:
        """
        Return the result that rolled the transaction back, or raise what the error means.

        If it means that there is a newer claim, also note that.
        """
        if isinstance(error, TakenBack):
            return error.result
        found = list(causes(error))
        newer = next((each for each in found if sqlstate_of(each) == _TAKEN), None)
        if newer is not None:
            self._refuse()
            raise TakenOver(first_line(newer)) from error
        if self._is_blameless(error):
            said = next((each for each in found if sqlstate_of(each) is not None), error)
            msg = f"Postgres: {first_line(said)}"
            raise Unavailable(msg) from error
        raise error

    def _refuse(self) -> None:
        for claim, number in zip(self._claims, self.numbers, strict=True):
            if claim is not None and number is not None:
                claim.refused = number

    def _is_blameless(self, error: Exception) -> bool:
        if self.line is not None:
            return self._is_of_the_server(error)
        # The handler was not called, so no event is at fault, unless the database cannot hold its
        # id: it would wait for ever.
        if isinstance(error, DovecoteError | ValueError):
            return False
        return not any(map(is_at_fault, causes(error)))

    def _is_of_the_server(self, error: Exception) -> bool:
        """Return whether the handler's own connection failed, and not the handler."""
        ours = over(self.line, error)
        if states := [state for each in ours if (state := sqlstate_of(each)) is not None]:
            return any(map(is_blameless, states))
        # Out of the handler, an error of the driver may also be a misuse of it.
        return any(map(says_away, ours)) if self._lost is None else self._lost
