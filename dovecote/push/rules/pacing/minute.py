"""The outcomes of the last minute's requests."""

from collections import Counter, deque
from dataclasses import dataclass, field

_SECONDS = 60.0
_STEP = 1.0


@dataclass(slots=True)
class _Step:
    began: float
    outcomes: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)


class LastMinute:
    """Counts outcomes by the second, so that its size has a bound; the caller passes the time."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()

    def add(self, now: float, outcome: str, *, dead: bool = False) -> None:
        """Count an outcome: a status, or `no answer`; `dead`: the record is a dead letter now."""
        if not self._steps or now - self._steps[-1].began >= _STEP:
            self._forget(now)
            self._steps.append(_Step(now))
        step = self._steps[-1]
        step.outcomes[outcome] += 1
        if dead:
            step.dead[outcome] += 1

    def outcomes(self, now: float) -> dict[str, int]:
        """Return how often each outcome came, the most frequent first."""
        return self._sum([step.outcomes for step in tuple(self._steps) if self._counts(step, now)])

    def dead(self, now: float) -> dict[str, int]:
        """Return how many records became dead letters, by the outcome."""
        return self._sum([step.dead for step in tuple(self._steps) if self._counts(step, now)])

    def _counts(self, step: _Step, now: float) -> bool:
        return now - step.began < _SECONDS

    def _sum(self, counts: list[Counter[str]]) -> dict[str, int]:
        total: Counter[str] = Counter()
        for each in counts:
            total.update(each.copy())  # another thread may read while the loop counts
        return dict(total.most_common())

    def _forget(self, now: float) -> None:
        while self._steps and not self._counts(self._steps[0], now):
            self._steps.popleft()


def listed(outcomes: dict[str, int]) -> str:
    """Return outcomes in words: `12 x 401, 3 x no answer`."""
    return ", ".join(f"{number} x {outcome}" for outcome, number in outcomes.items())
