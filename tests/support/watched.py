"""A watch over one partition, with a clock and answers that a test sets."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from confluent_kafka import KafkaError

from dedup.metrics import Metrics
from dedup.retries.aside import Partition
from dedup.rules.lanes.assigned import Assigned, assigned
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.unread import Place, SkipNote, covering
from dedup.unread.watch import Watch
from outbox.errors import DovecoteError

PLACE = ("orders", 0)
BROKEN = KafkaError(KafkaError._BAD_COMPRESSION, "Decompression failed")
ODD = KafkaError(KafkaError.UNKNOWN, "odd")


class AtOnce(Executor):
    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*given, **named))
        except (DovecoteError, TypeError) as error:
            done.set_exception(error)
        return done


class Watched:
    """A watch over one partition that stands at 42."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr("dedup.unread.watch.time.monotonic", lambda: self.now)
        lanes: Lanes[Any] = Lanes("apart")
        self.found = assigned(
            lanes.begin(*PLACE),
            Offsets(42, "dove1tAAAAAAAAAAAAAAAAAAAAAB", topic_id="AAAAAAAAAAAAAAAAAAAAAB"),
            max_skew=10,
        )
        self.assigned: dict[Partition, Assigned] = {PLACE: self.found}
        self.moved: list[Mapping[Partition, int]] = []
        self.notes: list[SkipNote] = []
        self.no_notes = ""
        self.fails: type[Exception] = DovecoteError
        self.stable: dict[Partition, int] = {}
        self.refused = ""
        self.asked: list[Place] = []
        self.metrics = Metrics("g")
        self.watch = Watch(
            self.assigned,
            read_from=self.moved.append,
            noted=self._noted,
            stable=lambda _: self.stable,
            refused=self._asked_anew,
            threads=AtOnce(),
            metrics=self.metrics,
            stall_after=60,
        )

    def _noted(self, places: Mapping[Place, str | None]) -> Mapping[Place, SkipNote]:
        if self.no_notes:
            raise self.fails(self.no_notes)
        found = {place: covering(self.notes, place, id_) for place, id_ in places.items()}
        return {place: note for place, note in found.items() if note is not None}

    def _asked_anew(self, place: Place) -> str:
        self.asked.append(place)
        return self.refused

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self.watch.go_on()

    def stand(self, end: int) -> str:
        """Let nothing come for longer than is right, and return what is said of it."""
        self.watch.observe({PLACE: end})
        self.now += 61
        self.watch.observe({PLACE: end})
        self.look()
        self.watch.observe({PLACE: end})
        return self.watch.report()

    def look(self) -> None:
        """Let it ask, and take the answer."""
        self.go_on(5)
        self.go_on(0)
