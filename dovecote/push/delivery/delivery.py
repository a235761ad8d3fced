"""Deliver the records of one subscription to its endpoint, one request for each attempt."""

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from dedup.retries.backoff import Failure
from dedup.rules.policies.results import Dead, Done, Early, Result, Retry
from dedup.rules.policies.wording import plain
from dedup.rules.record import Record
from dedup.serving.direct import Slot
from dovecote.process.states import State
from dovecote.push.delivery import shape
from dovecote.push.delivery.answers import Answers, broken
from dovecote.push.delivery.gate import Gate, Passed
from dovecote.push.delivery.noted import DETAIL_CHARACTERS, Noted
from dovecote.push.delivery.sending import Sending, Underway
from dovecote.push.delivery.shaking import REST_SECONDS, Shaking
from dovecote.push.delivery.traced import request_spans
from dovecote.push.delivery.windows import Windows
from dovecote.push.http.client import Client
from dovecote.push.http.connection import Forbidden, SendFailed
from dovecote.push.metrics import SubscriptionMetrics
from dovecote.push.rules.condition import DeliverySeen
from dovecote.push.rules.pacing.minute import listed
from dovecote.push.rules.pacing.pace import Pace
from dovecote.push.rules.sending.answer import KEPT_BYTES, Answer
from dovecote.push.rules.sending.ports import Book, Circuit, Outcome
from dovecote.push.rules.sending.quota import Quota
from dovecote.push.rules.sending.request import Composer
from dovecote.push.rules.sending.verdict import (
    DONE,
    Disable,
    NotAnswered,
    Shown,
    Verdict,
    asked_wait,
    judge,
    shows,
)
from dovecote.push.rules.sending.verdict import Outcome as Answering
from dovecote.push.rules.subscription.hiding import hiding
from dovecote.push.rules.subscription.subscription import Subscription
from outbox import envelope
from outbox.errors import InvalidEvent

_log = logging.getLogger("dovecote.push")

_ROW = 2
"""Failures in a row that are said; one alone may be an accident."""
_REST = timedelta(seconds=REST_SECONDS)
_SPARED_SECONDS = 3_600.0
_SAID_SECONDS = 5.0
"""A wait that an endpoint asks for is said if it is longer."""
_NO_WAIT = timedelta(0)
_BEHIND = timedelta(milliseconds=500)


class DeliveryHandler:
    """
    The async handler of a subscription's records, on one loop.

    It returns results that its consumer turns into a retry, a dead letter or a commit. While the
    circuit is open, or it is not a record's turn, the record waits, and burns no attempt.

    The probe of an open circuit burns no attempt either, for an hour at most. So a record outlives
    an outage, and a record that always fails is given up all the same.
    """

    def __init__(
        self,
        subscription: Subscription,
        client: Client,
        numbers: SubscriptionMetrics,
        book: Book,
        *,
        windows: Windows | None = None,
        origin: str = "dovecote",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subscription, self._client = subscription, client
        self._numbers, self._book, self._windows = numbers, book, windows
        self.noted = Noted(subscription.id, numbers, book)
        self._clock = clock
        self._spans = request_spans(subscription)
        self._composer = Composer(shape.form(subscription), traced=self._spans.are_made)
        self.is_direct = windows is None and not self._spans.are_made
        """Whether `begin` takes records; if not, each waits for more than its answer."""
        self._signer, self._rules = shape.signer(subscription), shape.rules(subscription)
        self._hide = hiding(shape.secrets(subscription))
        breaker = shape.breaker(subscription)
        self._pace = Pace(subscription.limits.rate)
        self.gate = Gate(
            breaker,
            shape.concurrency(subscription),
            self._pace,
            adapts=breaker.threshold > 0,
            clock=clock,
        )
        numbers.open.set_function(lambda: not breaker.closed)
        self._patience = shape.plan(subscription).patience
        self._shaking = Shaking(
            subscription.id,
            client,
            self._pace,
            self._hide,
            target=self._composer.target,
            origin=origin,
            needed=subscription.endpoint.handshake,
        )
        self._ending = False
        self._gone = self._forbidden = self._broken = ""
        self._answers = Answers()
        self._spared: dict[tuple[str, int, int], float] = {}
        """Since when each record that was a probe has been spared its attempts."""

    async def deliver(self, record: Record) -> Result:
        """Send the record, if it is its turn; return the result for it."""
        place = record.topic, record.partition, record.offset
        if self._windows is not None and not await self._windows.enter(*place):
            return Early("it is not its turn", self._pause(0.0))
        if not self._shaking.done:
            await self._shaking.ask()
            if not self._shaking.done:
                return Early(self._shaking.trouble, _REST)
        passed = self.gate.at_once() or await self.gate.enter()
        if not isinstance(passed, Passed):
            return Early("the endpoint cannot take it", self._pause(passed))
        result = await self._attempted(record, passed)
        if type(result) is Done and self._windows is not None:
            self._windows.finished(*place)
        return result

    def end(self) -> None:
        """Begin no more requests; those in flight go on."""
        self._ending = True
        self.gate.end()
        if self._windows is not None:
            self._windows.end()

    @property
    def trouble(self) -> str:
        """The current problem with the endpoint; empty: there is none."""
        if told := self._gone or self._shaking.trouble or self._forbidden:
            return told
        breaker, now = self.gate.breaker, self._clock()
        pause = self._pace.pause(now)
        if pause > _SAID_SECONDS:
            return f"the endpoint asks for a wait and gets nothing for another {pause:.0f} s"
        if self._pace.in_vain >= _ROW:
            why = "the endpoint answers nothing but 429"
        elif not breaker.closed:
            why = f"the circuit is open: {self._broken}"
        elif breaker.in_a_row >= _ROW:
            why = f"the last {breaker.in_a_row} requests failed: {self._broken}"
        elif lost := self.noted.minute.dead(now):
            why = f"records became dead letters in the last minute: {listed(lost)}"
        else:
            return ""
        return f"{why}; answers of the last minute: {listed(self.noted.minute.outcomes(now))}"

    @property
    def last_minute(self) -> dict[str, int]:
        """The outcomes of the last minute's requests, and how often each came."""
        return self.noted.minute.outcomes(self._clock())

    def seen(self, consumer: State, reason: str, lag: int) -> DeliverySeen:
        """Return what was seen of the endpoint, besides what is known of the consumer."""
        now = self._clock()
        found = self.noted.outcomes.recently(now)
        return DeliverySeen(
            consumer=consumer,
            consumer_reason=reason,
            trouble=self.trouble,
            recently=found,
            delivered=None if found.delivered is None else now - found.delivered,
            failing=None if found.since is None else now - found.since,
            lag=lag,
            in_flight=self.gate.in_flight,
        )

    @property
    def circuit(self) -> Circuit:
        breaker = self.gate.breaker
        return "closed" if breaker.closed else "half_open" if breaker.probing else "open"

    def gave_up(self, record: Record) -> None:
        """Count a record as a dead letter."""
        self.noted.dead += 1
        self._spared.pop(record[:3], None)
        if self._windows is not None:
            self._windows.finished(*record[:3])

    def begin(self, record: Record, slot: Slot) -> bool:
        """
        Begin the request for a record, and call `slot` with what comes of it.

        False: it is `deliver`'s, because it has to wait, or because it is not a usual record.
        """
        if not self._shaking.done or not self.gate.is_open:
            return False
        at, began = time.time(), self._clock()
        try:
            request = self._composer.usual(record)
            if request is None:
                return False
            signed = self._signer.lines(request.id, int(at), request.body)
            message = self._client.message(request, signed=signed)
        except Exception:  # noqa: BLE001  # `deliver` comes to the same, as the record's failure
            return False
        if not self._client.is_ready or (passed := self.gate.admit(began)) is None:
            return False
        attempt = Underway(record, passed, request.event, number=1, at=at, began=began)
        if not self._client.begin(message, attempt.begun(self, message, slot).took):
            self.gate.leave(passed, "nothing")
            return False
        self._numbers.requested(record.timestamp, at)
        return True

    def succeeded(self, attempt: Sending, answer: Answer) -> None:
        """Take an answer that is success."""
        self._forbidden = ""
        told, limits = self._answers.read(answer)
        self.gate.leave(attempt.passed, "success")
        now = self._clock()
        self._pace.told(now, attempt.passed.phase, limits)
        self._spared.clear()
        detail = self._excerpt(answer) if answer.excerpt else ""
        self.noted.add(attempt, "delivered", told, now=now, detail=detail)

    def after(self, found: Answer | SendFailed, message: bytes) -> Awaitable[Answer]:
        """As `Client.after`."""
        return self._client.after(found, message)

    async def finish(self, attempt: Sending, answering: Awaitable[Answer]) -> Result:
        """
        Await the answer of an attempt, and return the result for its record.

        Raises:
            BaseException: whatever comes instead of an answer or of its lack.
        """
        shown: Shown = "nothing"
        wait: float | None = None
        try:
            outcome, detail, limits = await self._answered(attempt, answering)
            shown = shows(outcome, self._rules)
            if shown == "limited" and (asked := asked_wait(outcome, self._rules, now=_now())):
                wait = asked.total_seconds()
            elif shown not in {"success", "nothing", "limited"}:
                self._broken = broken(outcome, detail)
        finally:
            if self.gate.leave(attempt.passed, shown, wait):
                self._opened()
        # Almost all answers are success, and need no calendar.
        verdict = DONE if shown == "success" else judge(outcome, self._rules, now=_now())
        return self._concluded(
            attempt, verdict, outcome, limits=limits, detail=detail, shown=shown
        )

    async def _attempted(self, record: Record, passed: Passed) -> Result:
        try:
            request = self._composer.request(record)
            number = 1 if request.is_first else _attempt(record)
            at, began = time.time(), self._clock()
            if number == 1:
                self._numbers.requested(record.timestamp, at)
            span = self._spans.begin(record, number)
            attempt = Sending(
                record, passed, request.event, number=number, at=at, began=began, span=span
            )
            signed = self._signer.lines(request.id, int(at), request.body)
            traced = self._composer.allowed(span.headers)
            answering = self._client.send(request, traced, signed)
        except BaseException:
            self.gate.leave(passed, "nothing")
            raise
        return await self.finish(attempt, answering)

    async def _answered(
        self, attempt: Sending, answering: Awaitable[Answer]
    ) -> tuple[Answering, str, Quota]:
        """
        Return the outcome, words for it, and the endpoint's own numbers.

        The words are the beginning of the answer, or the failure.
        """
        try:
            answer = await answering
        except SendFailed as error:
            said = plain(self._hide(str(error)))
            self._forbidden = said if isinstance(error, Forbidden) else ""
            return NotAnswered(said), said, Quota()
        except BaseException as error:
            attempt.span.failed(error)
            raise
        self._forbidden = ""
        told, limits = self._answers.read(answer)
        return told, self._excerpt(answer), limits

    def _excerpt(self, answer: Answer) -> str:
        if not answer.excerpt:
            return ""
        said = answer.excerpt.decode(errors="replace")
        cut = answer.cut or len(answer.excerpt) >= KEPT_BYTES
        return self._hide(said, cut=cut)[:DETAIL_CHARACTERS]

    def _concluded(
        self,
        attempt: Sending,
        verdict: Verdict | Early,
        outcome: Answering,
        *,
        limits: Quota,
        detail: str,
        shown: Shown,
    ) -> Result:
        """Take an outcome, which the gate has already; return the result for the record."""
        record, passed = attempt.record, attempt.passed
        now = self._clock()
        answers_itself = shown in {"success", "limited"}
        self._pace.told(now, passed.phase, limits, of_endpoint=answers_itself)
        seconds = now - attempt.began
        if isinstance(verdict, Early):  # the pace waits as long as the endpoint asks, or longer
            verdict = Early(verdict.error, timedelta(seconds=self._pace.pause(now)))
        elif isinstance(verdict, Retry) and passed.probe and self._spares(record, now):
            verdict = Early(verdict.error, max(verdict.after or _NO_WAIT, self._until_next(now)))
        told = self._became(verdict, record, attempt.number, seconds)
        if shown == "limited" and told == "retry":
            told = "limited"
        attempt.span.ended(outcome, told, detail)
        if told == "delivered":
            self._spared.clear()
        self.noted.add(attempt, told, outcome, now=now, detail=detail)
        if isinstance(verdict, Disable):
            self._disable(verdict.reason)
            return Early(verdict.reason, _REST)
        return verdict

    def _became(self, verdict: Verdict, record: Record, number: int, seconds: float) -> Outcome:
        match verdict:
            case Done():
                return "delivered"
            case Disable():
                return "disabled"
            case Dead():
                return "dead"
            case Early():
                return "retry"
            case Retry(error):
                failure = Failure(
                    identity=record.identity, attempt=number, seconds=seconds, error=error
                )
                return "retry" if self._patience.after(failure) is not None else "dead"

    def _spares(self, record: Record, now: float) -> bool:
        """Return whether a failed probe burns no attempt of its record."""
        since = self._spared.setdefault(record[:3], now)
        return now - since < _SPARED_SECONDS

    def _until_next(self, now: float) -> timedelta:
        """Return the wait after which another record has had its chance to be the next probe."""
        return timedelta(seconds=max(0.0, self.gate.breaker.until - now)) + _BEHIND

    def _opened(self) -> None:
        _log.warning(
            "%s: the circuit of %s is open: %s",
            self._subscription.id,
            self._subscription.endpoint.url,
            self._broken,
        )

    def _disable(self, reason: str) -> None:
        if not self._ending:
            self._gone = reason
            _log.warning("%s is disabled: %s", self._subscription.id, reason)
            self.end()
            self._book.disable(self._subscription.id, self._subscription.endpoint.url, reason)

    def _pause(self, seconds: float) -> timedelta:
        # While everything ends, a record that comes back at once would do so again and again.
        return _REST if self._ending else timedelta(seconds=seconds)


def _attempt(record: Record) -> int:
    try:
        return envelope.delivery(record).attempt if envelope.was_delivered(record) else 1
    except InvalidEvent:
        return 1


def _now() -> datetime:
    return datetime.now(UTC)
