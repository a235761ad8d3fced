"""A record waits no longer than it was to wait, also if somebody sets the clock meanwhile."""

from datetime import timedelta

from dedup.retries.aside import Held
from dedup.retries.backoff import Backoff
from dedup.retries.copies import Copy
from dedup.retries.due import DueTimes, wait
from dedup.retries.plan import Plan, Tier
from dedup.rules.policies.results import Retry
from dedup.rules.record import Record
from dedup.serving.retries import Retries
from outbox.envelope import ID, NOT_BEFORE

NOW = 1_800_000_000_000
HOURS = 5 * 3_600_000
RECORD = Record("orders", 3, 44, NOW - 1_000, b"k", b"{}", [(ID, b"e1")])
TIER = Tier("orders.retry")


class Clocks:
    """A wall clock in milliseconds, which may be set, and seconds that only pass."""

    def __init__(self) -> None:
        self.wall, self.passed = NOW, 100.0

    def let_pass(self, seconds: int) -> None:
        self.wall += seconds * 1000
        self.passed += seconds


class Sent:
    """Takes every copy."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []

    def send(self, topic: str, copy: Copy) -> None:  # noqa: ARG002  # there is one
        self.copies.append(copy)


def retries(clocks: Clocks, *tiers: Tier, sent: Sent | None = None) -> Retries:
    plan = Plan(patience=Backoff(), tiers=tiers, dead_letters="dead")
    waits = DueTimes(lambda: clocks.passed)
    return Retries(plan, sent or Sent(), now=lambda: clocks.wall, waits=waits)


def test_a_key_that_is_held_goes_on_in_time_although_the_clock_was_set_back() -> None:
    clocks = Clocks()
    held = retries(clocks)
    assert held.place(RECORD, Retry("down", timedelta(seconds=10)), 1) == Held(
        timedelta(seconds=10)
    )
    clocks.wall -= HOURS
    clocks.let_pass(4)
    assert held.early(RECORD) == timedelta(seconds=6)
    clocks.let_pass(6)
    assert held.early(RECORD) is None
    # If its handler's database is away then, the record does not begin to wait once more.
    assert held.early(RECORD) is None
    assert held.place(RECORD, Retry("down", timedelta(seconds=2)), 2) == Held(timedelta(seconds=2))
    assert held.early(RECORD) == timedelta(seconds=2)


def test_a_copy_that_waits_goes_on_in_time_although_the_clock_was_set_back() -> None:
    clocks = Clocks()
    reading = retries(clocks, TIER)
    copy = Record(
        TIER.topic, 0, 7, NOW, b"k", b"{}", [(ID, b"e1"), (NOT_BEFORE, str(NOW + 9_000).encode())]
    )
    assert reading.early(copy) == timedelta(seconds=9)
    clocks.wall -= HOURS
    clocks.let_pass(9)
    assert reading.early(copy) is None


def test_a_copy_from_a_clock_that_was_hours_ahead_waits_for_as_long_as_that_had_set() -> None:
    clocks, sent = Clocks(), Sent()
    clocks.wall += HOURS
    writing = retries(clocks, TIER, sent=sent)
    writing.place(RECORD, Retry("down", timedelta(seconds=9)), 1)
    (written,) = sent.copies
    copy = Record(TIER.topic, 0, 7, clocks.wall, b"k", b"{}", written.headers)
    clocks.wall -= HOURS
    assert retries(clocks, TIER).early(copy) == timedelta(seconds=9)


def test_clocks_that_are_a_little_apart_shorten_no_wait() -> None:
    assert wait(NOW + 2_000, NOW, NOW + 5_000) == 2_000
    assert wait(NOW + 2_000, NOW, NOW - HOURS) == 2_000
    assert wait(NOW + 2_000, NOW) == 2_000
    assert wait(NOW + HOURS + 2_000, NOW, NOW + HOURS) == 2_000


def test_what_is_completed_or_is_another_members_is_forgotten() -> None:
    clocks = Clocks()
    held = retries(clocks)
    later = RECORD._replace(offset=45)
    for each in (RECORD, later):
        held.place(each, Retry("down"), 1)
    waits = held._waits
    assert {*waits._ends} == {RECORD[:3], later[:3]}
    held.released(RECORD)
    assert {*waits._ends} == {later[:3]}
    held.revoked([("orders", 3)])
    assert not waits._ends
