"""Spark's store of one bucket, and workers that step it."""

from collections.abc import Sequence
from typing import Any

from spark_jobs.operators.step import Input, Operator, Output
from spark_jobs.stateful.codec import OperatorCodec
from spark_jobs.stateful.parts import Kept, Stored

MOST = 10**9


class Parts(dict[tuple[int, ...], tuple[bytes]]):
    """Spark's map of a bucket, which counts what is asked of it."""

    calls = 0

    def getValue(self, key: tuple[int, ...]) -> tuple[bytes] | None:  # noqa: N802  # Spark's name
        self.calls += 1
        return self.get(key)

    def updateValue(self, key: tuple[int, ...], value: tuple[bytes]) -> None:  # noqa: N802  # as above
        self.calls += 1
        self[key] = value

    def removeKey(self, key: tuple[int, ...]) -> None:  # noqa: N802  # as above
        del self[key]

    def clear(self) -> None:
        self.calls += 1
        super().clear()


class Workers:
    """A bucket in a store, stepped by one worker or another."""

    def __init__(self, operator: Operator[Any], *, workers: int = 2) -> None:
        self.value: bytes | None = None
        self.parts = Parts()
        self.last: Any = None
        """The state after the last step, as it is in the worker's memory."""
        self.written = 0
        self._workers = workers
        self.go_on_with(operator)

    def go_on_with(self, operator: Operator[Any]) -> None:
        """Begin anew with an operator of other settings."""
        self.operator, self.codec = operator, OperatorCodec(operator)
        self.kept = [Kept() for _ in range(self._workers)]

    def stored(self, worker: int) -> Stored:
        return Stored(self.codec, self.parts, self.kept[worker], "q")

    def state(self, worker: int) -> Any:
        if self.value is None:
            return self.operator.start()
        return self.stored(worker).read(0, self.value)

    def step(
        self,
        records: Sequence[Input],
        now: int,
        *,
        worker: int = 0,
        behind: bool = False,
        fails: bool = False,
    ) -> list[Output]:
        """Step; `fails`: Spark drops what the attempt has written, and the worker lives on."""
        before = self.value, Parts(self.parts)
        state = self.state(worker)
        step = self.operator.step(state, records, now, behind=behind)
        stored = self.stored(worker)
        writing = stored.writing(step.state, self.value, MOST)
        stored.write(0, step.state, writing)
        self.value, self.last = writing.value, step.state
        self.written = len(writing.value) + len(writing.part or b"")
        if fails:
            self.value, self.parts = before
        return step.outputs


class Spark:
    """Keeps the state of one bucket, its timers, and the one map that its operator asks for."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.timers: set[int] = set()
        self.map = Parts()

    def getValueState(self, name: str, schema: str) -> "Spark":  # noqa: ARG002, N802  # Spark's names
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def getMapState(self, name: str, key: str, value: str) -> "Parts":  # noqa: ARG002, N802  # as above
        return self.map

    def registerTimer(self, moment: int) -> None:  # noqa: N802  # as above
        self.timers.add(moment)

    def deleteTimer(self, moment: int) -> None:  # noqa: N802  # as above
        self.timers.discard(moment)

    def due(self, now: int) -> list[int]:
        found = sorted(moment for moment in self.timers if moment <= now)
        self.timers.difference_update(found)
        return found
