"""The poll thread takes lanes back while others take them, in order to hand them over together."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from dedup.rules.lanes.lanes import Lane, Lanes
from dedup.rules.record import Record
from dedup.serving.handover import Batch, Handover, HandoverReport
from dedup.serving.runs import next_run
from dedup.serving.tasks import Desk, Tasks
from dedup.serving.threads import Threads
from tests.support.waiting import patient

NUMBER = 4


class Contended(deque[Lane[Record]]):
    """Reports before a lane is taken, and after its length was asked for."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__()
        self.told = told

    def __len__(self) -> int:
        number = super().__len__()
        self.told("len")
        return number

    def popleft(self) -> Lane[Record]:
        self.told("popleft")
        return super().popleft()

    def clear(self) -> None:
        self.told("clear")
        super().clear()


@dataclass
class Serves:
    """Records what it serves."""

    offsets: list[int] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def serve(self, lane: Lane[Record], report: HandoverReport) -> None:
        self.serve_together([lane], report)

    def serve_together(self, lanes: Sequence[Lane[Record]], report: HandoverReport) -> None:
        for lane in lanes:
            while (run := next_run(lane)) is not None:
                self.offsets += [record.offset for record in run.records]
                lane.current = None
            report.served.append(lane)
        if len(self.offsets) >= NUMBER:
            self.done.set()


class ServesAwaited(Serves):
    async def serve(self, lane: Lane[Record], desk: Desk) -> None:  # type: ignore[override]  # awaited
        super().serve_together([lane], desk.report)

    async def serve_together(self, lanes: Sequence[Lane[Record]], desk: Desk) -> None:  # type: ignore[override]  # awaited
        super().serve_together(lanes, desk.report)


@pytest.mark.parametrize("kind", [Threads, Tasks])
def test_lanes_that_are_taken_back_at_that_moment_are_served_once(
    kind: type[Threads | Tasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    handover, failures = Handover(Lanes()), list[BaseException]()
    taken_back, pops = threading.Event(), list[str]()

    def told(what: str) -> None:
        if handover.lock.locked() or taken_back.is_set():
            return
        # Threads take everything that they have; tasks have taken one lane before they take
        # others.
        pops.append(what)
        moment = what == "clear" or pops.count("popleft") > (kind is Tasks)
        if moment or (what == "len" and kind is Tasks):
            taken_back.set()
            workers.reclaim(everything=True)

    monkeypatch.setattr(f"{kind.__module__}.deque", lambda: Contended(told))
    serves = Serves() if kind is Threads else ServesAwaited()
    workers = kind(handover, serves, most=1, together=NUMBER, failed=failures.append)  # type: ignore[arg-type]  # each its own
    batch: Batch = {
        b"k%d" % n: [Record("t", 0, n, 0, b"k%d" % n, b"1", ())] for n in range(NUMBER)
    }
    with handover.lock:
        stretch = handover.lanes.begin("t", 0)
        handover.lanes.open(stretch)
    try:
        workers.wake(handover.offer([(stretch, batch)]))
        assert serves.done.wait(patient(5)), failures
    finally:
        workers.close()
    assert taken_back.is_set()
    assert sorted(serves.offsets) == list(range(NUMBER))
    assert failures == []
