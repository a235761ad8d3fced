"""The gate that every request to an endpoint passes: circuit, concurrency and rate."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dovecote.push.rules.pacing.breaker import Breaker
from dovecote.push.rules.pacing.limits import Concurrency
from dovecote.push.rules.pacing.pace import Pace
from dovecote.push.rules.sending.verdict import Shown

# A request that waits longer is retried: giving up a partition waits for the requests in here.
_LONGEST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Passed:
    """Permission to send one request."""

    probe: bool = False
    """Whether it probes if the endpoint is back."""
    phase: int = 0
    """The phase of the pace in which it is sent."""


class Gate:
    """Used on one loop only; requests are admitted in the order in which they came."""

    def __init__(
        self,
        breaker: Breaker,
        concurrency: Concurrency,
        pace: Pace,
        *,
        adapts: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.breaker, self.concurrency, self.pace = breaker, concurrency, pace
        self._adapts, self._clock = adapts, clock
        self._passed = Passed()
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._ending = False
        self.in_flight = 0

    @property
    def is_open(self) -> bool:
        """Whether it admits a request at once, if the rate allows it."""
        return not (
            self._waiting
            or self._ending
            or self.breaker.opened
            or self.in_flight >= self.concurrency.limit
        )

    def at_once(self) -> Passed | None:
        """Return permission to send if nothing has to be waited for; otherwise None."""
        return self.admit(self._clock()) if self.is_open else None

    def admit(self, now: float) -> Passed | None:
        """As `at_once`, while it `is_open`."""
        if self.pace.reserve(now, most=0.0) > 0.0:
            return None
        self.in_flight += 1
        return self._permission()

    async def enter(self) -> Passed | float:
        """Return permission to send, or after how many seconds to come again."""
        if self._ending:
            return _LONGEST_SECONDS
        wait: float | None = None
        if self._waiting or (wait := self._closed()) != 0.0:
            # Only time, or the probe's success, closes an open circuit.
            if not await self._turn(wait):
                if self._closed() != 0.0:
                    return 0.0
                self.in_flight += 1
        else:
            self.in_flight += 1
        return await self._slot(self._permission())

    def _permission(self) -> Passed:
        phase = self.pace.phase
        if not self.breaker.closed:
            return Passed(probe=True, phase=phase)
        if self._passed.phase != phase:
            self._passed = Passed(phase=phase)
        return self._passed

    async def _slot(self, passed: Passed) -> Passed | float:
        """Wait for the turn that the rate allows; otherwise return when to come again."""
        longest = self.pace.ahead or _LONGEST_SECONDS
        pause = self.pace.reserve(self._clock(), most=longest)
        if pause > longest:
            self.leave(passed, "nothing")
            return pause
        if pause > 0.0:
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self.leave(passed, "nothing")
                raise
            if self._ending:
                self.leave(passed, "nothing")
                return _LONGEST_SECONDS
            if passed.phase != self.pace.phase:  # the endpoint has asked to wait meanwhile
                self.leave(passed, "nothing")
                return self.pace.pause(self._clock())
        return passed

    def leave(self, passed: Passed, shown: Shown, wait: float | None = None) -> bool:
        """
        Take what a request showed about the endpoint; return whether it opens the circuit.

        `wait`: the seconds that an endpoint asks for that limits the rate.
        """
        opened, now = False, self._clock()
        match shown:
            case "success" | "refusal":
                opened = self._judged(now, passed, success=shown == "success")
            case "limited":
                self.pace.limited(now, passed.phase, wait)
                if passed.probe:
                    self.breaker.abandoned()  # it is there, and takes nothing yet
            case "overload":
                if self._adapts:
                    self.concurrency.overloaded(now)
                opened = self.breaker.failed(now, probe=passed.probe)
            case "failure":
                opened = self.breaker.failed(now, probe=passed.probe)
            case "nothing":
                if passed.probe:
                    self.breaker.abandoned()
        self.in_flight -= 1
        if self._waiting:
            self._wake()
        return opened

    def _judged(self, now: float, passed: Passed, *, success: bool) -> bool:
        """Take an answer of an endpoint that looked at the record."""
        was_closed, opened = self.breaker.closed, False
        self.pace.took(now)
        if success:
            self.breaker.succeeded()
        else:
            opened = self.breaker.refused(now, probe=passed.probe)
        if self.breaker.closed:
            if not was_closed:
                self.concurrency.begin_anew()
            self.concurrency.succeeded(self.in_flight)
        return opened

    def end(self) -> None:
        """Admit no more requests, and send away those that wait."""
        self._ending = True
        while self._waiting:
            _wake(self._waiting.popleft())

    def _closed(self) -> float | None:
        """Return 0 if a request may pass; otherwise for how long not, if that is known."""
        if self._ending or self.in_flight >= self.concurrency.limit:
            return None
        return self.breaker.wait(self._clock())

    async def _turn(self, wait: float | None) -> bool:
        """Wait for a place, and take it; False: none came in time."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        longest = min(wait or _LONGEST_SECONDS, _LONGEST_SECONDS)
        timer = loop.call_later(longest, _wake, turn)
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.in_flight -= 1
                self._wake()
            raise
        finally:
            timer.cancel()
            while self._waiting and self._waiting[0].done():
                self._waiting.popleft()

    def _wake(self) -> None:
        """Give free places to the requests that have waited longest."""
        if not self.breaker.closed or self._ending:
            return
        while self._waiting and self.in_flight < self.concurrency.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(True)


def _wake(turn: asyncio.Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)
