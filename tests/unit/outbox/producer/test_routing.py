"""In whatever order things fail, nothing accepted is lost, and each lane keeps its order."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.producer.routing import EVERY, Lane, RouteLimits, Routing

LANES = [b"a", b"b", b"c", b"d", None]
STEPS = 250
SMALL = RouteLimits(lanes=2, questions=2, hold=2.0, rest=1.0, longest_rest=4.0)


class World:
    """
    A producer, its routing, and servers as values.

    Kafka may take records without saying so, even long after their producer has ended. A commit
    may fail, or be reported as failed, or come later. The relay may park anything.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.routing = chance, Routing(SMALL)
        self.now, self.count = 0.0, 0
        self.topic: list[int] = []
        self.lane_of: dict[int, Lane | None] = {}
        self.accepted: set[int] = set()
        self.waiting: set[int] = set()
        self.flying: list[int] = []
        self.landed: list[int] = []
        self.ghosts: list[list[int]] = []
        self.commits: list[Sequence[int]] = []
        self.late: list[tuple[int, Sequence[int]]] = []
        self.place_of: dict[int, int] = {}
        self.published = self.xid = 0
        self.parked: defaultdict[Lane | None, list[int]] = defaultdict(list)
        self.writing: list[int] = []
        self.asked: dict[Lane, int] = {}
        self.drained: list[Lane] = []
        self.aside: list[Lane] = []

    def live(self) -> None:
        """Do anything that can be done, many times; then let everything go well."""
        does: dict[Callable[[], None], int] = {
            self.offer: 12, self.restore: 6, self.break_down: 1, self.write: 6, self.begin: 2,
            self.have_written: 6, self.ask: 6, self.be_answered: 6, self.wait: 2,
            self.be_killed: 1, self.land: 8, self.acknowledge: 6, self.land_late: 2,
            self.commit_late: 1, self.relay: 8, self.requeue: 1,
        }  # fmt: skip
        for step in self.chance.choices(list(does), list(does.values()), k=STEPS):
            # These are rare; otherwise nothing else would come to an end.
            if step not in {self.be_killed, self.break_down} or self.chance.random() < 0.5:
                step()
            self.require_order()
            self.require_all()
        self.end()

    # The producer's actions.

    def offer(self) -> None:
        number, self.count = self.count, self.count + 1
        self.lane_of[number] = lane = self.chance.choice(LANES)
        self.waiting.add(number)
        if self.routing.offer(number, lane):
            self.flying.append(number)

    def restore(self) -> None:
        if not self.routing.is_up:
            self.flying, self.landed = [], []
            self.routing.restored()

    def break_down(self) -> None:
        if self.routing.is_up:
            self.ghosts.append(self.flying)
            self.routing.broken()

    def write(self) -> None:
        if not self.writing and self.routing.backlog:
            self.writing = list(self.routing.write(self.chance.choice([None, None, 1, 2])))

    def have_written(self) -> None:
        numbers, self.writing = self.writing, []
        if not numbers:
            return
        self.xid += 1
        outcome = self.chance.choice(["done"] * 4 + ["lost", "unsaid", "late", "refused"])
        if outcome in {"done", "unsaid"}:
            self.commit(self.xid, numbers)
        if outcome == "late":
            self.late.append((self.xid, numbers))
        if outcome == "done":
            assert self.routing.written(self.xid) == numbers
            self.accept(numbers)
            return
        given_up = numbers[: len(numbers) // 2 + 1] if outcome == "refused" else []
        self.routing.not_written(given_up)
        self.waiting -= set(given_up)

    def begin(self) -> None:
        if self.routing.needs_token:
            self.xid += 1
            self.commit(self.xid, [])
            self.routing.began(self.xid)

    def ask(self) -> None:
        self.asked = self.routing.questions()
        assert len(self.asked) <= SMALL.questions
        # From now on, the answer may be of any time.
        self.drained = [lane for lane in self.asked if self.has_drained(lane)]
        self.aside = [
            lane for lane, numbers in self.parked.items() if numbers and lane is not None
        ]

    def be_answered(self) -> None:
        asked, self.asked = self.asked, {}
        released = self.routing.answered(asked, self.drained, self.now, self.aside)
        assert self.routing.is_up or not released
        self.flying += released

    def wait(self) -> None:
        self.now += self.chance.choice([0.5, 2.5])
        self.routing.overdue(self.now)

    def be_killed(self) -> None:
        self.ghosts.append(self.flying)
        self.flying, self.landed, self.writing = [], [], []
        self.waiting.clear()
        self.asked = {}
        self.routing = Routing(SMALL)

    # The servers' actions.

    def land(self) -> None:
        """Kafka takes records, in the order in which one producer sent them."""
        count = self.chance.randint(1, 3)
        self.topic += self.flying[:count]
        self.landed += self.flying[:count]
        del self.flying[:count]

    def acknowledge(self) -> None:
        if self.routing.is_up:
            count = self.chance.randint(1, 3)
            told, self.landed = self.landed[:count], self.landed[count:]
            self.accept(self.routing.acknowledged(told))

    def land_late(self) -> None:
        if ghosts := [ghost for ghost in self.ghosts if ghost]:
            self.topic.append(self.chance.choice(ghosts).pop(0))

    def commit_late(self) -> None:
        if self.late:
            self.commit(*self.late.pop(0))

    def relay(self) -> None:
        if self.published == len(self.commits):
            return
        for number in self.commits[self.published]:
            lane = self.lane_of[number]
            poison = lane == b"a" and self.chance.random() < 0.1
            if poison or (lane is not None and self.parked[lane]):
                self.parked[lane].append(number)
            else:
                self.topic.append(number)
        self.published += 1

    def requeue(self) -> None:
        self.topic += chain.from_iterable(self.parked.values())
        self.parked.clear()

    # The invariants.

    def require_order(self) -> None:
        places = {number: place for place, number in reversed(list(enumerate(self.topic)))}
        newest: dict[Lane, int] = {}
        for number in sorted(places.keys() & self.accepted):
            lane = self.lane_of[number]
            if lane is not None:
                assert places[number] > newest.get(lane, -1), (lane, number, self.topic)
                newest[lane] = places[number]

    def require_all(self) -> None:
        coming = set(chain.from_iterable(self.commits[self.published :]))
        aside = set(chain.from_iterable(self.parked.values()))
        assert self.accepted <= coming | aside | set(self.topic)

    def end(self) -> None:
        """Let everything go well: all events are accepted, and lanes go back to Kafka."""
        for _ in range(300):
            if not self.waiting and not self.routing.lanes:
                break
            for step in (self.relay, self.restore, self.land, self.acknowledge, self.requeue):
                step()
            for step in (self.write, self.have_written, self.begin, self.ask, self.be_answered):
                step()
            self.wait()
        assert (self.waiting, self.routing.lanes) == (set(), 0)
        self.require_order()

    def accept(self, numbers: Sequence[int]) -> None:
        assert set(numbers) <= self.waiting
        self.waiting -= set(numbers)
        self.accepted |= set(numbers)

    def commit(self, xid: int, numbers: Sequence[int]) -> None:
        self.place_of[xid] = len(self.commits)
        self.commits.append(numbers)

    def has_drained(self, lane: Lane) -> bool:
        told = self.published > self.place_of[self.asked[lane]]
        return told and (lane == EVERY or not self.parked[lane])


@settings(max_examples=400)
@given(st.integers(0, 2**32))
def test_whatever_fails_nothing_accepted_is_lost_and_first_occurrences_keep_their_order(
    seed: int,
) -> None:
    World(random.Random(seed)).live()  # a network, not a secret


def up(limits: RouteLimits = SMALL) -> Routing:
    routing = Routing(limits, fresh=True)
    routing.restored()
    return routing


def test_events_go_to_kafka_while_it_answers() -> None:
    routing = up()
    assert [routing.offer(number, b"a") for number in range(3)] == [True] * 3
    assert routing.acknowledged([0, 1, 7]) == [0, 1]
    assert routing.unsure == 2


def test_what_is_unsure_goes_into_one_transaction_in_the_order_in_which_it_was_sent() -> None:
    routing = up()
    for number, lane in enumerate([b"a", b"b", None, b"a", b"b"]):
        assert routing.offer(number, lane)
    routing.acknowledged([1])
    routing.broken()
    assert routing.offer(5, b"a") is False
    assert routing.write() == [0, 2, 3, 4, 5]


def test_a_part_of_them_is_written_first_and_what_failed_comes_before_the_rest() -> None:
    routing = Routing(SMALL, fresh=True)
    for number in range(5):
        routing.offer(number, b"a")
    assert (routing.write(3), routing.backlog) == ([0, 1, 2], 2)
    routing.not_written([1])
    assert (routing.write(2), routing.written(10)) == ([0, 2], [0, 2])
    assert routing.write() == [3, 4]


def test_a_key_stays_with_the_outbox_until_its_last_event_has_drained() -> None:
    routing = up()
    routing.offer(0, b"a")
    routing.broken()
    routing.write()
    routing.written(10)
    routing.restored()
    assert (routing.offer(1, b"a"), routing.offer(2, b"b")) == (False, True)
    assert routing.questions() == {b"a": 10}
    # The answer is about an event that is no longer the last.
    assert routing.answered({b"a": 10}, [b"a"], 0.0, []) == []
    routing.write()
    routing.written(11)
    assert routing.offer(3, b"a") is False
    assert routing.backlog == 0
    assert routing.answered({b"a": 11}, [b"a"], 0.1, []) == [3]
    assert routing.offer(4, b"a")


def test_a_key_whose_next_events_are_held_for_too_long_goes_on_through_the_outbox() -> None:
    routing = up()
    routing.offer(0, b"a")
    routing.broken()
    routing.write()
    routing.written(10)
    routing.restored()
    routing.offer(1, b"a")
    routing.answered({b"a": 10}, [b"a"], 0.0, [])
    routing.offer(2, b"a")
    assert (routing.is_holding, routing.backlog) == (True, 1)
    routing.overdue(2.0)
    assert (routing.is_holding, routing.backlog) == (False, 2)
    routing.write()
    routing.written(11)
    routing.offer(3, b"a")
    routing.answered({b"a": 11}, [b"a"], 2.5, [])
    assert not routing.is_holding
    routing.answered({b"a": 11}, [b"a"], 3.5, [])
    assert routing.is_holding


def test_it_is_asked_about_one_transaction_until_that_has_drained() -> None:
    routing = up()
    routing.offer(0, b"a")
    routing.broken()
    for token in (10, 11, 12):
        routing.write()
        routing.written(token)
        assert routing.questions() == {b"a": 10}
        routing.answered({b"a": 10}, [], 0.0, [])
        routing.offer(token, b"a")
    routing.answered({b"a": 10}, [b"a"], 0.0, [])
    assert routing.questions() == {b"a": 12}


def test_a_new_producer_waits_for_what_an_earlier_one_left_in_the_outbox() -> None:
    routing = Routing(SMALL)
    routing.restored()
    assert routing.offer(0, None)
    assert routing.needs_token
    routing.began(7)
    assert routing.questions() == {EVERY: 7}
    assert routing.answered({EVERY: 7}, [EVERY], 0.0, [b"b"]) == []
    # Parked events still wait.
    assert (routing.offer(1, b"a"), routing.offer(2, b"b")) == (True, False)


def test_too_many_keys_go_through_the_outbox_together() -> None:
    routing = up()
    for number, lane in enumerate([b"a", b"b", b"c"]):
        routing.offer(number, lane)
    routing.broken()
    assert routing.lanes == 1
    routing.write()
    routing.written(5)
    routing.restored()
    assert routing.offer(3, b"d") is False
    assert routing.questions() == {EVERY: 5}


def test_too_many_parked_keys_keep_all_with_the_outbox() -> None:
    routing = Routing(SMALL)
    routing.restored()
    routing.began(7)
    routing.answered({EVERY: 7}, [EVERY], 0.0, [b"a", b"b", b"c"])
    assert routing.offer(0, b"z") is False


def test_one_transaction_is_written_after_the_other() -> None:
    routing = up()
    routing.broken()
    routing.offer(0, b"a")
    routing.write()
    with pytest.raises(AssertionError):
        routing.write()
