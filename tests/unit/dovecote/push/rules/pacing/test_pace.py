"""The pace finds the rate that an endpoint takes, whatever way the endpoint limits it."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovecote.push.rules.pacing.pace import Pace
from dovecote.push.rules.sending.quota import NO_QUOTA, Quota

Takes = Callable[[float], bool]


def apart(rate: float) -> Takes:
    """Take a request that comes long enough after the last one taken."""
    last = [-1e9]

    def takes(now: float) -> bool:
        if now - last[0] < 1 / rate:
            return False
        last[0] = now
        return True

    return takes


def bucket(rate: float) -> Takes:
    """Take a request if there is a token; a second's tokens are saved."""
    tokens = [rate, 0.0]

    def takes(now: float) -> bool:
        tokens[:] = min(rate, tokens[0] + (now - tokens[1]) * rate), now
        if tokens[0] < 1:
            return False
        tokens[0] -= 1
        return True

    return takes


def by_the_second(rate: float) -> Takes:
    """Take so many requests in each second of its clock."""
    second = [-1, 0]

    def takes(now: float) -> bool:
        if int(now + 0.37) != second[0]:
            second[:] = int(now + 0.37), 0
        second[1] += 1
        return second[1] <= rate

    return takes


def sliding(rate: float) -> Takes:
    """Take a request if there were fewer in the second before it."""
    taken: deque[float] = deque()

    def takes(now: float) -> bool:
        while taken and taken[0] <= now - 1:
            taken.popleft()
        if len(taken) >= rate:
            return False
        taken.append(now)
        return True

    return takes


@dataclass
class World:
    """Sixty-four keys with records without end, and an endpoint 5 ms away; time is made up."""

    takes: Takes
    pace: Pace = field(default_factory=lambda: Pace(None))
    wait: float | None = 1.0
    quota: Quota = field(default_factory=Quota)
    taken: list[float] = field(default_factory=list)
    refused: int = 0
    in_flight: int = 0
    limit: int = 8
    random: Random = field(default_factory=lambda: Random(1))

    def run(self, seconds: float) -> None:
        order = count()
        due: list[tuple[float, int, str, int]] = [
            (0.0, next(order), "enter", 0) for _ in range(64)
        ]
        while due[0][0] < seconds:
            now, _, what, phase = heapq.heappop(due)
            after, what, phase = self._step(now, what, phase)
            heapq.heappush(due, (now + after, next(order), what, phase))

    def _step(self, now: float, what: str, phase: int) -> tuple[float, str, int]:
        match what:
            case "enter" if self.in_flight >= self.limit:
                return 0.003, "enter", 0
            case "enter":
                most = self.pace.ahead or 2.0
                if (pause := self.pace.reserve(now, most=most)) > most:
                    return pause, "enter", 0
                self.in_flight += 1
                late = self.random.expovariate(1 / 0.0007) if pause else 0.0
                return pause + late, "send", self.pace.phase
            case "send" if phase == self.pace.phase:
                return 0.0025, "taken" if self.takes(now + 0.0025) else "refused", phase
        self.in_flight -= 1
        if what == "send":
            return 0.0, "enter", 0
        return self._answered(now, phase, taken=what == "taken"), "enter", 0

    def _answered(self, now: float, phase: int, *, taken: bool) -> float:
        if taken:
            self.taken.append(now)
            self.pace.took(now)
            self.pace.told(now, phase, self.quota)
            self.limit = min(64, self.limit + 1)
            return 0.0
        self.refused += 1
        self.pace.limited(now, phase, self.wait)
        self.pace.told(now, phase, self.quota)
        return self.pace.pause(now)


# No client sends to the millisecond, so `apart` has the lowest rate alone.
@pytest.mark.parametrize(
    ("limit", "rate"),
    [(apart, 10), *product([bucket, by_the_second, sliding], [10, 100, 1000])],
)
def test_an_endpoint_gets_nine_tenths_of_what_it_takes_and_few_requests_more(
    limit: Callable[[float], Takes], rate: int
) -> None:
    # The search takes up to half a minute with an endpoint that never takes two at once.
    begins, ends = 30.0, 90.0
    world = World(limit(rate))
    world.run(ends)
    later = [at for at in world.taken if at >= begins]
    assert len(later) >= 0.9 * rate * (ends - begins)
    assert (len(world.taken) + world.refused) / len(world.taken) < 1.2


def test_an_endpoint_that_says_no_wait_is_asked_less_and_less_while_it_takes_nothing() -> None:
    world = World(lambda _: False, wait=None)
    world.run(600.0)
    assert world.refused < 30
    assert world.pace.in_vain > 5


def test_after_it_took_nothing_for_a_while_the_rate_is_found_again() -> None:
    takes = sliding(50)
    world = World(lambda now: now > 60 and takes(now))
    world.run(400.0)
    assert len([at for at in world.taken if at > 340]) >= 0.9 * 50 * 60


def test_a_limit_that_changes_is_followed() -> None:
    few, many = sliding(20), sliding(200)
    world = World(lambda now: many(now) if now < 60 or now > 120 else few(now))
    world.run(600.0)
    assert len([at for at in world.taken if 90 < at <= 120]) >= 0.7 * 20 * 30
    assert len([at for at in world.taken if at > 540]) >= 0.9 * 200 * 60


def test_nothing_is_sent_before_the_wait_is_over() -> None:
    pace = Pace(None)
    assert pace.reserve(10.0, most=2.0) == 0.0
    pace.limited(10.0, 0, 30.0)
    assert pace.reserve(10.0, most=2.0) == 30.0
    assert pace.reserve(39.5, most=2.0) == pytest.approx(0.5)
    assert pace.pause(41.0) == 0.0


def test_answers_to_requests_of_one_phase_count_once_and_the_longest_wait_counts() -> None:
    pace = Pace(None)
    pace.reserve(10.0, most=2.0)
    pace.limited(10.0, 0, 1.0)
    found = pace.found
    pace.limited(10.1, 0, 5.0)
    assert pace.found == found
    assert pace.phase == 1
    assert pace.pause(10.1) == pytest.approx(5.0)


def test_a_wait_is_never_longer_than_an_hour() -> None:
    pace = Pace(None)
    pace.reserve(10.0, most=2.0)
    pace.limited(10.0, 0, 86_400.0)
    assert pace.pause(10.0) == 3600.0


def test_the_rate_of_the_settings_is_the_most() -> None:
    pace = Pace(5.0)
    assert pace.found is None
    pace.reserve(10.0, most=2.0)
    for n in range(100):
        pace.took(10.0 + n / 100)
    pace.limited(11.0, 0, 1.0)
    assert pace.found == 5.0
    pace.most = 2.0
    assert pace.found == 2.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "took", "limited", "late"]),
            st.floats(0, 1e6),
            st.none() | st.floats(0, 1e12),
        ),
        max_size=60,
    ),
    st.none() | st.floats(1e-6, 1e6),
)
def test_whatever_comes_the_rate_is_one_and_every_wait_ends(
    steps: list[tuple[str, float, float | None]], most: float | None
) -> None:
    pace, now = Pace(most), 1.0
    for what, gap, wait in steps:
        now += gap
        match what:
            case "reserve":
                assert 0.0 <= pace.reserve(now, most=2.0) <= 7200.0
            case "took":
                pace.took(now)
            case _:
                pace.limited(now, pace.phase - (what == "late"), wait)
        assert pace.found is None or 0.0 < pace.found <= (most or 1e12)
        assert pace.pause(now) <= 3600.0


@pytest.mark.parametrize(
    ("limit", "rate"), [*product([bucket, by_the_second, sliding], [10, 100, 1000])]
)
def test_an_endpoint_that_says_its_rate_gets_it_from_the_beginning(
    limit: Callable[[float], Takes], rate: int
) -> None:
    world = World(limit(rate), quota=Quota(float(rate)))
    world.run(30.0)
    assert len(world.taken) >= 0.9 * rate * 30
    assert world.refused <= 0.05 * len(world.taken)


def test_an_endpoint_whose_quota_is_spent_gets_nothing_until_there_is_another() -> None:
    pace = Pace(None)
    pace.told(0.0, pace.phase, Quota(None, 30))
    assert pace.pause(10.0) == 20.0
    pace.told(10.0, pace.phase - 1, Quota(None, 60))  # of a request that was on its way
    assert pace.pause(10.0) == 20.0
    assert pace.found is None
    assert pace.reserve(30.0, most=1.0) == 0.0


def test_a_rate_that_an_endpoint_says_is_no_more_than_the_settings_allow() -> None:
    pace = Pace(5.0)
    pace.told(0.0, pace.phase, Quota(10.0))
    pace.reserve(0.0, most=9.0)
    assert pace.reserve(0.0, most=9.0) == pytest.approx(0.2)


def test_a_rate_that_an_endpoint_no_longer_says_ends() -> None:
    pace = Pace(None)
    pace.told(0.0, pace.phase, Quota(1.0))
    for at in (1.0, 2.0, 3.0, 59.0):  # a window of a minute may still hold
        pace.told(at, pace.phase, NO_QUOTA)
    assert pace.found == pytest.approx(0.97)
    pace.told(60.0, pace.phase, Quota(2.0))
    for at in (121.0, 122.0):  # two answers may be those of another instance
        pace.told(at, pace.phase, NO_QUOTA)
    pace.told(123.0, pace.phase, NO_QUOTA, of_endpoint=False)
    assert pace.found == pytest.approx(1.94)
    pace.told(124.0, pace.phase, NO_QUOTA)
    assert pace.found is None
    assert [pace.reserve(125.0, most=0.0) for _ in range(100)] == [0.0] * 100


def test_a_rate_in_an_answer_that_is_not_the_endpoints_is_not_taken_but_its_wait_is() -> None:
    pace = Pace(None)
    pace.told(0.0, pace.phase, Quota(0.1, 30), of_endpoint=False)
    assert pace.found is None
    assert pace.pause(0.0) == 30.0
