"""
However lanes are taken, given back, held or ended: each key in order, one at a time, nothing lost.
"""

from collections import deque
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dedup.rules.lanes.lanes import Lane, Lanes, NullKey, Stretch


class Numbered(NamedTuple):
    key: bytes | None
    number: int
    epoch: int


class World(RuleBasedStateMachine):
    """Two partitions, a few keys, and workers that take lanes and serve a run at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: Lanes[Numbered] = Lanes()
        self.stretches: dict[int, Stretch[Numbered]] = {}
        self.taken: list[Lane[Numbered]] = []
        self.offered: list[Numbered] = []
        self.served: list[Numbered] = []
        self.number = 0
        self.now = 0.0

    @rule(partition=st.integers(0, 1), opened=st.booleans())
    def assign(self, partition: int, opened: bool) -> None:  # noqa: FBT001  # drawn by name
        if partition not in self.stretches:
            stretch = self.lanes.begin("t", partition)
            self.stretches[partition] = stretch
            if opened:
                self.lanes.open(stretch)

    @rule(partition=st.integers(0, 1))
    def open(self, partition: int) -> None:
        stretch = self.stretches.get(partition)
        if stretch is not None and not stretch.opened:
            self.lanes.open(stretch)

    @rule(
        partition=st.integers(0, 1),
        keys=st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=5),
    )
    def offer(self, partition: int, keys: list[bytes | None]) -> None:
        stretch = self.stretches.get(partition)
        if stretch is None:
            return
        batch: dict[bytes | None, list[Numbered]] = {}
        for key in keys:
            self.number += 1
            record = Numbered(key, self.number, stretch.epoch)
            batch.setdefault(key, []).append(record)
            self.offered.append(record)
        self.lanes.offer(stretch, batch)

    @rule(most=st.integers(1, 3))
    def take(self, most: int) -> None:
        taken = self.lanes.take(most)
        assert not any(lane is other for lane in taken for other in self.taken)
        self.taken += taken

    @rule(serve=st.integers(0, 3), hold=st.booleans())
    def give_back(self, serve: int, hold: bool) -> None:  # noqa: FBT001  # drawn by name
        if not self.taken:
            return
        lane = self.taken.pop(0)
        for _ in range(serve):
            if lane.current is None and lane.runs:
                lane.current = lane.runs.popleft()
            run = lane.current
            if run is None or run.stretch is not lane.stretch:
                break
            if run.stretch.live:
                assert run.stretch.opened
                self.served += run.records
            lane.current = None
        if hold and lane.runs and lane.current is None:
            lane.current = lane.runs.popleft()
        if lane.current is not None and hold:
            self.lanes.hold(lane, self.now + 1)
        else:
            self.lanes.give_back([lane])

    @rule()
    def put_back(self) -> None:
        fresh = [lane for lane in self.taken if lane.current is None]
        self.taken = [lane for lane in self.taken if lane.current is not None]
        self.lanes.put_back(reversed(fresh))

    @rule()
    def wait(self) -> None:
        self.now += 1
        self.lanes.release(self.now)

    @rule(partition=st.integers(0, 1))
    def end(self, partition: int) -> None:
        if partition in self.stretches:
            self.lanes.end(self.stretches.pop(partition))

    @invariant()
    def each_key_is_served_in_order_and_each_record_once(self) -> None:
        assert len(set(self.served)) == len(self.served)
        by_key: dict[tuple[bytes, int], int] = {}
        for record in self.served:
            if record.key is not None:
                assert by_key.get((record.key, record.epoch), 0) < record.number
                by_key[record.key, record.epoch] = record.number

    def teardown(self) -> None:
        """Serve everything that is left: nothing of an unfinished stretch was lost."""
        for stretch in self.stretches.values():
            if not stretch.opened:
                self.lanes.open(stretch)
        while True:
            self.wait()
            self.take(1)
            if not self.taken:
                if not self.lanes.held:
                    break
                continue
            self.give_back(3, hold=False)
        live = {stretch.epoch for stretch in self.stretches.values()}
        assert {r for r in self.offered if r.epoch in live} <= set(self.served)
        assert self.lanes.known == 0
        assert self.lanes.ready == 0
        assert all(stretch.at_work == 0 for stretch in self.stretches.values())


def test_each_key_goes_in_order_and_nothing_is_lost_whatever_happens() -> None:
    steps = settings(max_examples=150, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(World, settings=steps)


def lanes_of(keys: list[bytes | None], null_key: NullKey) -> Lanes[Numbered]:
    lanes: Lanes[Numbered] = Lanes(null_key)
    stretch = lanes.begin("t", 0)
    lanes.open(stretch)
    for number, key in enumerate(keys):
        lanes.offer(stretch, {key: [Numbered(key, number, 1)]})
    return lanes


def test_records_without_a_key_are_apart_or_in_line_as_asked() -> None:
    assert len(lanes_of([None, None, None], "apart").take(10)) == 3
    (one,) = lanes_of([None, None, None], "partition").take(10)
    assert len(one.runs) == 3


def test_first_is_whose_next_record_is_oldest() -> None:
    lanes = lanes_of([b"a", b"a", b"b", b"c"], "apart")
    (first,) = lanes.take(1)
    first.runs.popleft()
    lanes.give_back([first])
    assert [lane.key for lane in lanes.take(10)] == [b"a", b"b", b"c"]


def test_what_was_taken_and_not_begun_goes_back_to_the_head() -> None:
    lanes = lanes_of([b"a", b"b", b"c"], "apart")
    taken = lanes.take(2)
    lanes.put_back(iter(deque(reversed(taken))))
    assert [lane.key for lane in lanes.take(10)] == [b"a", b"b", b"c"]


def test_a_schedule_is_all_that_is_left_if_every_lane_is_held_for_one() -> None:
    lanes: Lanes[int] = Lanes()
    stretch = lanes.begin("t", 0)
    lanes.open(stretch)
    assert lanes.only_scheduled
    lanes.offer(stretch, {b"a": [1], b"b": [2]})
    assert not lanes.only_scheduled

    one, other = lanes.take(2)
    one.scheduled = True
    lanes.hold(one, 5.0)
    assert lanes.only_scheduled  # the other is at work, which its stretch says
    assert stretch.at_work == 1
    lanes.hold(other, 5.0)
    assert not lanes.only_scheduled
    other.scheduled = True
    assert lanes.only_scheduled
    lanes.release(6.0)
    assert not lanes.only_scheduled


def test_a_lane_that_is_held_after_its_stretch_has_ended_holds_no_key_of_the_next() -> None:
    lanes: Lanes[int] = Lanes()
    ended = lanes.begin("t", 0)
    lanes.open(ended)
    lanes.offer(ended, {b"a": [1]})
    (lane,) = lanes.take(1)
    lane.current = lane.runs.popleft()
    lanes.end(ended)
    lanes.hold(lane, 300.0)

    following = lanes.begin("t", 0)
    lanes.open(following)
    lanes.offer(following, {b"a": [2]})
    assert lanes.release(0.0) is None
    assert [each.runs[-1].records for each in lanes.take(10) if each.runs] == [[2]]
