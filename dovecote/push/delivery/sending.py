"""One attempt to deliver a record, from its request to what comes of it."""

from collections.abc import Awaitable
from functools import partial
from typing import Protocol

from dedup.rules.policies.results import Result
from dedup.rules.record import Record
from dedup.serving.direct import Slot
from dovecote.push.delivery.gate import Passed
from dovecote.push.delivery.traced import NO_SPAN, RequestSpan
from dovecote.push.http.connection import SendFailed
from dovecote.push.rules.sending.answer import Answer


class Sending:
    """A request for a record, and when it was sent."""

    __slots__ = ("at", "began", "event", "number", "passed", "record", "span")

    def __init__(
        self,
        record: Record,
        passed: Passed,
        event: str,
        *,
        number: int,
        at: float,
        began: float,
        span: RequestSpan = NO_SPAN,
    ) -> None:
        self.record, self.passed, self.event, self.number = record, passed, event, number
        self.at, self.began, self.span = at, began, span


class TakesAnswers(Protocol):
    """Takes what came of an attempt that was begun."""

    def succeeded(self, attempt: Sending, answer: Answer) -> None:
        """Take an answer that is success."""

    async def finish(self, attempt: Sending, answering: Awaitable[Answer]) -> Result:
        """Await the answer, and return the result for the record."""

    def after(self, found: Answer | SendFailed, message: bytes) -> Awaitable[Answer]:
        """Return what answers the request, after this came of it."""


class Underway(Sending):
    """An attempt whose answer calls back: a success at once, and a task sees to anything else."""

    __slots__ = ("delivery", "message", "slot")

    def begun(self, delivery: TakesAnswers, message: bytes, slot: Slot) -> "Underway":
        """Return it with where its answer goes."""
        self.delivery, self.message, self.slot = delivery, message, slot
        return self

    def took(self, found: Answer | SendFailed) -> None:
        """Take the answer, or why there is none."""
        if isinstance(found, Answer) and 200 <= found.status < 300:  # noqa: PLR2004  # what 2xx is
            try:
                self.delivery.succeeded(self, found)
            except Exception as error:  # noqa: BLE001  # it is the result's, as in a task
                self.slot.unfinished(partial(_raise, error))
            else:
                self.slot.done()
        else:
            self.slot.unfinished(partial(self._finish, found))

    async def _finish(self, found: Answer | SendFailed) -> Result:
        return await self.delivery.finish(self, self.delivery.after(found, self.message))


async def _raise(error: Exception) -> Result:
    raise error
