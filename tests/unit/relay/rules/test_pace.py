"""A batch is never for long so large that it cannot be confirmed in time."""

import pytest

from relay.errors import Outage
from relay.publishing import paced
from relay.rules.pace import Pace

FULL = 16_000_000


class Way:
    """Takes `rate` bytes per second, and answers `answer` seconds later."""

    def __init__(self, rate: float, answer: float = 0.01, longest: float = 60) -> None:
        self.rate, self.answer, self.longest = rate, answer, longest
        self.now, self.through, self.lost = 0.0, 0, 0

    def send(self, pace: Pace, *, left: int = FULL) -> None:
        size = min(pace.most, left)
        seconds = size / self.rate + self.answer
        if seconds > self.longest:
            self.now += self.longest
            self.lost += 1
            pace.failed(size)
        else:
            self.now += seconds
            self.through += size
            pace.confirmed(size, seconds)


@pytest.mark.parametrize("rate", [3_000, 20_000, 100_000, 150_000, 1e6, 1e9])
@pytest.mark.parametrize("answer", [0.001, 0.3])
def test_a_way_of_any_width_is_used(rate: float, answer: float) -> None:
    pace, way = Pace(FULL, 60), Way(rate, answer)
    while way.now < 300 and way.through < 1e9:
        way.send(pace)
    assert way.lost <= 1
    # The time of one answer is small beside a full batch.
    possible = min(rate, FULL / (FULL / rate + answer))
    assert way.through / way.now > 0.7 * possible


def test_on_a_wide_way_batches_are_full_after_a_few() -> None:
    pace, way = Pace(FULL, 60), Way(1e8)
    for _ in range(2):
        way.send(pace)
    assert pace.most == FULL


def test_a_way_that_lets_the_first_batches_pass_at_once_is_found_to_be_narrow() -> None:
    pace = Pace(FULL, 60)
    now, through, lost = 0.0, 0, 0
    saved, rate, quota = 300_000.0, 20_000, 300_000.0
    while now < 600:
        size = pace.most
        seconds = max(0.01, (size - saved) / rate)
        lost += (is_lost := seconds > 60)
        saved = max(0.0, min(quota, saved + min(seconds, 60) * rate - size))
        now += min(seconds, 60)
        if is_lost:
            pace.failed(size)
        else:
            through += size
            pace.confirmed(size, seconds)
    assert lost == 1
    assert through / now > 0.7 * rate


def test_a_way_that_gets_narrow_is_noticed_once() -> None:
    pace, way = Pace(FULL, 60), Way(1e8)
    for _ in range(10):
        way.send(pace)
    way.rate = 100_000
    for _ in range(10):
        way.send(pace)
    assert way.lost == 1
    assert way.through / way.now > 0.7
    way.rate = 1e8
    for _ in range(10):
        way.send(pace)
    assert pace.most == FULL


def test_down_to_one_event_and_back() -> None:
    pace = Pace(FULL, 60)
    for _ in range(40):
        pace.failed(pace.most)
    assert pace.most == 1
    for _ in range(30):
        pace.confirmed(pace.most, 0.1)
    assert pace.most == FULL


def test_what_is_small_says_nothing_of_what_is_large() -> None:
    pace = Pace(FULL, 60)
    for _ in range(100):
        pace.confirmed(1_000, 0.01)
    assert pace.most < 1_000_000


def test_an_outage_makes_the_next_batch_small() -> None:
    pace = Pace(FULL, 60)
    for _ in range(10):
        with paced(pace, lambda: pace.most):
            pass
    assert pace.most == FULL
    with pytest.raises(Outage), paced(pace, lambda: FULL):
        raise Outage
    assert pace.most < 1_000_000


def test_settings_may_ask_for_less() -> None:
    pace = Pace(1_000, 60)
    pace.confirmed(1_000, 0.01)
    assert pace.most == 1_000
