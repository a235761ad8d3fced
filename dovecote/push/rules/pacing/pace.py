"""Find the rate that an endpoint takes, from its answers of 429."""

from dataclasses import dataclass

from dovecote.push.rules.pacing.limits import Rate
from dovecote.push.rules.sending.quota import LONGEST_WINDOW, NO_QUOTA, Quota

_LONGEST_SECONDS = 3_600.0
_ANEW_SECONDS = 60.0
"""The longest wait that push chooses by itself."""
_SLOWEST = 1 / 60
_FIRST = 1.0
"""The rate from which the search begins if nothing was taken."""
_MARGIN = 0.95
_JUST_BELOW = 0.97
"""The share of a rate that an endpoint says: at the rate itself, chance makes it refuse some."""
_FALL = 0.9
_NEAR = 1.12
_CLOSE = 1.06
"""A rate that is this close below one that was too much is left alone."""
_ROLL_SECONDS = 5.0
_SILENT = 3
"""After so many answers in a row without a rate, an earlier one may hold no longer."""
_AHEAD_SECONDS = 0.5
"""How far ahead a slot is reserved at a rate that may rise: sooner slots come with it."""
_QUICK_SECONDS = 0.5
_HOLD_SECONDS = 1.0
_LONGEST_HOLD_SECONDS = 16.0
_STEADY_SECONDS = 30.0
_SOON_SECONDS = 1.0
"""A new quota that comes so soon is not waited for: endpoints round its time up to seconds."""
_LONGEST_STEADY_SECONDS = 300.0
_SAVES = 50.0
"""Below this rate, two requests are never closer than the rate says: the endpoint may check it."""
_GENTLY = 1.05
_BOLDLY = 2.0


@dataclass(slots=True)
class _Stretch:
    """Requests that were taken since a moment."""

    began: float
    taken: int = 0


class Pace:
    """
    Waits as long as the endpoint asks, and then sends at the rate that it takes.

    Before the first 429 there is no limit but the configured one. Each 429 after that ends a
    phase. The requests taken in it, divided by its length with the wait at its end, are a lower
    bound of the rate. From there the rate rises until the next 429, falls back to a rate that has
    held, and goes a quarter of the way to the one that was too much, near it half of the way.
    Close below it stays, and tries a little more once in a while. After each 429 it takes twice
    as long before it rises.

    All requests that were on their way at a 429 are of one phase, so their answers count once.

    An endpoint that says its rate itself gets no more than that, until it no longer says it: three
    answers in a row are without it, and the longest window of a quota is over.
    """

    def __init__(self, most: float | None) -> None:
        self._most = most
        self._allowed: float | None = None
        self._said_at, self._silent = 0.0, 0
        self._found: float | None = None
        self._rate = Rate(most)
        self._held: float | None = None
        self._too_much: float | None = None
        self._factor, self._steady, self._hold = _BOLDLY, _STEADY_SECONDS, _HOLD_SECONDS
        self._before, self._all, self._step = _Stretch(0.0), _Stretch(0.0), _Stretch(0.0)
        self._in_vain = 0
        self.phase = 0
        """Number of the phase; a request belongs to the one in which it was sent."""
        self.resumes = 0.0
        """When requests may be sent again."""

    @property
    def most(self) -> float | None:
        """Requests a second that the settings allow; None: any number."""
        return self._most

    @most.setter
    def most(self, value: float | None) -> None:
        self._most = value
        self._apply()

    @property
    def found(self) -> float | None:
        """Requests a second that the endpoint takes; None: it has set no limit."""
        return self._allowed if self._found is None else self._found

    @property
    def in_vain(self) -> int:
        """Number of phases in a row in which nothing was taken."""
        return self._in_vain

    @property
    def ahead(self) -> float | None:
        """For how many seconds at most a request waits for its slot; None: as the caller likes."""
        return None if self._found is None else _AHEAD_SECONDS

    def reserve(self, now: float, *, most: float) -> float:
        """As `Rate.reserve`, but nothing is sent before the endpoint's wait is over."""
        if not self._all.began:
            self._all.began = now
        if now >= self.resumes and self._rate.per_second is None:
            return 0.0
        pause = self.pause(now)
        if pause > most:
            return pause
        return pause + self._rate.reserve(now + pause, most=most - pause)

    def pause(self, now: float) -> float:
        """Return for how many seconds the endpoint gets nothing."""
        return min(max(0.0, self.resumes - now), _LONGEST_SECONDS)

    def told(self, now: float, phase: int, quota: Quota, *, of_endpoint: bool = True) -> None:
        """
        Take the numbers in an answer to a request of a phase.

        The rate in an answer that is not `of_endpoint` may be that of a server before it.
        """
        if quota is NO_QUOTA and self._allowed is None:
            return
        per_second = quota.per_second if of_endpoint else None
        if per_second is not None:
            self._said_at, self._silent = now, 0
            self._allow(per_second * _JUST_BELOW)
        elif of_endpoint and self._allowed is not None:
            self._silent += 1
            if self._silent >= _SILENT and now - self._said_at > LONGEST_WINDOW:
                self._allow(None)
        # An endpoint whose rate is known needs no wait for the next window.
        wait = 0.0 if quota.spent is None or per_second is not None else quota.spent
        if wait > _SOON_SECONDS and phase == self.phase:
            self._rest(now, wait)

    def _allow(self, per_second: float | None) -> None:
        if per_second != self._allowed:
            self._allowed = per_second
            self._found = self._held = self._too_much = None  # nothing has to be searched for
            self._apply()

    def took(self, now: float) -> None:
        """Take an answer other than 429."""
        self._in_vain = 0
        self._all.taken += 1
        if self._found is None:
            if (age := now - self._all.began) >= _ROLL_SECONDS:
                self._before = self._all if age < 2 * _ROLL_SECONDS else _Stretch(now)
                self._all = _Stretch(now)
            return
        self._step.taken += 1
        self._rise(now, self._found)

    def limited(self, now: float, phase: int, wait: float | None) -> None:
        """Take a 429 to a request of a phase; `wait`: the seconds that it asks for, if any."""
        if phase != self.phase:
            if wait is not None and now < self.resumes:
                self.resumes = max(self.resumes, now + min(wait, _LONGEST_SECONDS))
            return
        # An endpoint that takes nothing gets twice as long each time, whatever it asks for.
        least = min(2.0 ** min(self._in_vain - 2, 12), _ANEW_SECONDS)
        self.resumes = now + min(max(wait or 1.0, least), _LONGEST_SECONDS)
        self._fall(self._taken_a_second())
        self._rest(now, self.resumes - now)

    def _rest(self, now: float, seconds: float) -> None:
        """Send nothing for so long, and begin a phase after that."""
        self.phase += 1
        self.resumes = now + min(seconds, _LONGEST_SECONDS)
        self._all = _Stretch(self.resumes)
        self._step = _Stretch(self.resumes)
        self._apply()
        self._rate.begin(self.resumes)

    def _taken_a_second(self) -> float:
        """Return the rate at which requests were taken in the phase that ends."""
        taken, began = self._all.taken, self._all.began
        if self._found is None and self.resumes - began < _ROLL_SECONDS and self._before.taken:
            taken, began = taken + self._before.taken, self._before.began
        if not taken:
            self._in_vain += 1
        return taken / max(self.resumes - began, 1e-3)

    def _fall(self, taken: float) -> None:
        rate, held = self._found, self._held
        if rate is None:
            self._found = max(taken * _MARGIN, _SLOWEST) if taken else _FIRST
            return
        if not taken:  # it takes nothing at all, which says nothing about the rate it takes later
            self._held = self._too_much = None
            self._found, self._factor, self._hold = min(rate, _FIRST), _BOLDLY, _HOLD_SECONDS
            return
        self._too_much, self._factor = rate, _GENTLY
        self._hold = min(2 * self._hold, _LONGEST_HOLD_SECONDS)
        if held is not None and rate > held:
            self._found = max(held, min(taken, rate) * _MARGIN)
        else:
            least = rate / 2 if held is None else _FALL * rate
            self._held = None
            self._found = max(min(taken, rate) * _MARGIN, least, _SLOWEST)

    def _rise(self, now: float, rate: float) -> None:
        length, taken = now - self._step.began, self._step.taken
        above = self._too_much
        searching = above is None and self._hold == _HOLD_SECONDS
        if length < (_QUICK_SECONDS if searching else self._hold) or taken < (
            2 if searching else 4
        ):
            return
        if taken < 0.7 * rate * length:  # nobody needed more, which proves nothing
            self._step = _Stretch(now)
            return
        self._held = rate
        if above is None:
            self._found = rate * self._factor
            self._factor = min(self._factor**2, _BOLDLY)
        elif above > _CLOSE * rate:
            # At a low rate the time between two requests may be what counts: steps stay small.
            half = self._rate.saves and above < _NEAR * rate
            self._found = rate + (above - rate) * (0.5 if half else 0.25)
        elif length >= self._steady:
            self._steady = min(2 * self._steady, _LONGEST_STEADY_SECONDS)
            self._too_much, self._factor = None, _GENTLY
            return
        else:
            return
        self._step = _Stretch(now)
        self._apply()

    def _apply(self) -> None:
        limits = [each for each in (self._most, self._allowed) if each is not None]
        most = min(limits, default=None)
        if self._found is not None and most is not None:
            self._found = min(self._found, most)
        self._rate.per_second = most if self._found is None else self._found
        self._rate.saves = (self._found or self._allowed or _SAVES) >= _SAVES
