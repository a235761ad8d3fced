"""Deliver the records of one subscription to its endpoint, one request for each attempt."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dedup.retries.backoff import Failure
from dedup.rules.policies.results import Dead, Done, Early, Result, Retry
from dedup.rules.policies.wording import plain
from dedup.rules.record import Record
from dovecote.process.states import State
from dovecote.push.delivery import shape
from dovecote.push.delivery.answers import Answers, broken, named, why
from dovecote.push.delivery.gate import Gate, Passed
from dovecote.push.delivery.traced import RequestSpan, request_spans
from dovecote.push.delivery.windows import Windows
from dovecote.push.http.client import Client
from dovecote.push.http.connection import Forbidden, SendFailed
from dovecote.push.metrics import SubscriptionMetrics
from dovecote.push.rules.condition import DeliverySeen
from dovecote.push.rules.outcomes import Outcomes
from dovecote.push.rules.pacing.minute import LastMinute, listed
from dovecote.push.rules.pacing.pace import Pace
from dovecote.push.rules.sending import handshake
from dovecote.push.rules.sending.answer import KEPT_BYTES
from dovecote.push.rules.sending.ports import AttemptReport, Book, Circuit, Outcome
from dovecote.push.rules.sending.quota import Quota
from dovecote.push.rules.sending.request import Composer, Request
from dovecote.push.rules.sending.verdict import (
    DONE,
    Answered,
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

_RECENT = 512
_ROW = 2
"""Failures in a row that are said; one alone may be an accident."""
_REST = timedelta(seconds=2)
_DETAIL_CHARACTERS = 500
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
        self._origin, self._clock = origin, clock
        self._spans = request_spans(subscription)
        self._composer = Composer(shape.form(subscription), traced=self._spans.are_made)
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
        self._shaken = not subscription.endpoint.handshake
        self._shaking: asyncio.Task[None] | None = None
        self._ending = False
        self._trouble = self._forbidden = self._broken = ""
        self.delivered = self.failed = self.dead = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._answers = Answers()
        self._minute, self._outcomes = LastMinute(), Outcomes()
        self._spared: dict[tuple[str, int, int], float] = {}
        """Since when each record that was a probe has been spared its attempts."""

    async def deliver(self, record: Record) -> Result:
        """Send the record, if it is its turn; return the result for it."""
        place = record.topic, record.partition, record.offset
        if self._windows is not None and not await self._windows.enter(*place):
            return Early("it is not its turn", self._pause(0.0))
        if not self._shaken:
            await self._shake_hands()
            if not self._shaken:
                return Early(self._trouble, _REST)
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
        if self._trouble or self._forbidden:
            return self._trouble or self._forbidden
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
        elif lost := self._minute.dead(now):
            why = f"records became dead letters in the last minute: {listed(lost)}"
        else:
            return ""
        return f"{why}; answers of the last minute: {listed(self._minute.outcomes(now))}"

    @property
    def last_minute(self) -> dict[str, int]:
        """The outcomes of the last minute's requests, and how often each came."""
        return self._minute.outcomes(self._clock())

    def seen(self, consumer: State, reason: str, lag: int) -> DeliverySeen:
        """Return what was seen of the endpoint, besides what is known of the consumer."""
        now = self._clock()
        found = self._outcomes.recently(now)
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

    def percentiles(self) -> tuple[float | None, float | None]:
        """Return p50 and p99 of recent requests, in milliseconds."""
        recent = sorted(self._recent.copy())
        if not recent:
            return None, None
        return tuple(  # type: ignore[return-value]  # two of them
            round(recent[int(share * (len(recent) - 1))] * 1000, 2) for share in (0.5, 0.99)
        )

    def gave_up(self, record: Record) -> None:
        """Count a record as a dead letter."""
        self.dead += 1
        self._spared.pop(record[:3], None)
        if self._windows is not None:
            self._windows.finished(*record[:3])

    async def _attempted(self, record: Record, passed: Passed) -> Result:
        shown: Shown = "nothing"
        wait: float | None = None
        detail = ""
        try:
            request = self._composer.request(record)
            number = 1 if request.is_first else _attempt(record)
            at, began = time.time(), self._clock()
            if number == 1:
                self._numbers.added.observe(max(0.0, at - record.timestamp / 1000))
            span = self._spans.begin(record, number)
            outcome, detail, limits = await self._sent(request, int(at), span)
            shown = shows(outcome, self._rules)
            if shown == "limited" and (asked := asked_wait(outcome, self._rules, now=_now())):
                wait = asked.total_seconds()
            elif shown not in {"success", "nothing", "limited"}:
                self._broken = broken(outcome, detail)
        finally:
            if self.gate.leave(passed, shown, wait):
                self._opened()
        now = self._clock()
        self._pace.told(now, passed.phase, limits)
        seconds = now - began
        # Almost all answers are success, and need no calendar.
        verdict = DONE if shown == "success" else judge(outcome, self._rules, now=_now())
        if isinstance(verdict, Early):  # the pace waits as long as the endpoint asks, or longer
            verdict = Early(verdict.error, timedelta(seconds=self._pace.pause(now)))
        elif isinstance(verdict, Retry) and passed.probe and self._spares(record, now):
            verdict = Early(verdict.error, max(verdict.after or _NO_WAIT, self._until_next(now)))
        told = self._became(verdict, record, number, seconds)
        if shown == "limited" and told == "retry":
            told = "limited"
        span.ended(outcome, told, detail)
        self._count(told, seconds)
        self._minute.add(now, named(outcome), dead=told == "dead")
        self._note(now, told, outcome)
        self._book.attempted(
            AttemptReport(
                subscription=self._subscription.id,
                event_id=request.event[:_DETAIL_CHARACTERS],
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                key=_shown(record.key),
                number=number,
                at=at,
                seconds=seconds,
                status=outcome.status if isinstance(outcome, Answered) else None,
                outcome=told,
                detail=detail,
            )
        )
        if isinstance(verdict, Disable):
            self._disable(verdict.reason)
            return Early(verdict.reason, _REST)
        return verdict

    async def _sent(
        self, request: Request, now: int, span: RequestSpan
    ) -> tuple[Answering, str, Quota]:
        """
        Send a request; return the outcome, words for it, and the endpoint's own numbers.

        The words are the beginning of the answer, or the failure.
        """
        signed = self._signer.lines(request.id, now, request.body)
        traced = self._composer.allowed(span.headers)
        try:
            answer = await self._client.send(request, traced, signed)
        except SendFailed as error:
            said = plain(self._hide(str(error)))
            self._forbidden = said if isinstance(error, Forbidden) else ""
            return NotAnswered(said), said, Quota()
        except BaseException as error:
            span.failed(error)
            raise
        self._forbidden = ""
        told, limits = self._answers.read(answer)
        said = answer.excerpt.decode(errors="replace")
        cut = answer.cut or len(answer.excerpt) >= KEPT_BYTES
        return told, self._hide(said, cut=cut)[:_DETAIL_CHARACTERS] if said else "", limits

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

    def _count(self, told: Outcome, seconds: float) -> None:
        if told == "delivered":
            self.delivered += 1
            self._recent.append(seconds)
            self._spared.clear()
        self.failed += told not in {"delivered", "limited"}
        self._numbers.attempted(told, seconds)

    def _note(self, now: float, told: Outcome, outcome: Answering) -> None:
        """Note what a request came to; one that only came too early shows nothing."""
        if told != "limited":
            self._outcomes.add(now, "" if told == "delivered" else why(outcome))

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
            self._trouble = reason
            _log.warning("%s is disabled: %s", self._subscription.id, reason)
            self.end()
            self._book.disable(self._subscription.id, reason)

    def _pause(self, seconds: float) -> timedelta:
        # While everything ends, a record that comes back at once would do so again and again.
        return _REST if self._ending else timedelta(seconds=seconds)

    async def _shake_hands(self) -> None:
        """Ask whether requests may be sent; other requests meanwhile wait for the answer."""
        if self._shaking is None or self._shaking.done():
            self._shaking = asyncio.get_running_loop().create_task(self._asked())
        await asyncio.shield(self._shaking)

    async def _asked(self) -> None:
        headers = handshake.asking(self._origin, self._pace.most)
        try:
            answer = await self._client.options(self._composer.target, headers)
        except SendFailed as error:
            told: handshake.Agreed | handshake.NotAgreed = handshake.NotAgreed(str(error))
        else:
            told = handshake.agreement(answer.status, answer.headers, self._origin)
        if isinstance(told, handshake.NotAgreed):
            reason = plain(self._hide(told.reason))
            if reason != self._trouble:
                _log.warning("%s: no handshake: %s", self._subscription.id, reason)
            self._trouble = reason
            await asyncio.sleep(_REST.total_seconds())
            return
        self._trouble, self._shaken = "", True
        rates = [each for each in (self._pace.most, told.per_second) if each is not None]
        self._pace.most = min(rates, default=None)


def _attempt(record: Record) -> int:
    try:
        return envelope.delivery(record).attempt if envelope.was_delivered(record) else 1
    except InvalidEvent:
        return 1


def _shown(key: bytes | None) -> str | None:
    return None if key is None else key[:_DETAIL_CHARACTERS].decode(errors="backslashreplace")


def _now() -> datetime:
    return datetime.now(UTC)
