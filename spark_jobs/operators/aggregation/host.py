"""The process that scripts run in; its arguments are the connection and the shared memory."""

import gc
import mmap
import sys
from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from outbox.envelope import Record
from outbox.errors import BadSettings, DovecoteError
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.helper import Stepped
from spark_jobs.operators.aggregation.scripts.limits import SIZE, Limits
from spark_jobs.operators.aggregation.scripts.scripts import Scripts
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.aggregation.state import decoded, encoded
from spark_jobs.operators.step import Input

_KEPT = 64


class NotedChunks:
    """Reads chunks from the parent, and notes for it what is to change."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.begin()

    def begin(self) -> None:
        """Begin a request, with nothing noted."""
        self.written: list[tuple[int, int, bytes]] = []
        self.dropped: list[tuple[int, int]] = []

    def read(self, window: int, number: int) -> bytes:
        self._connection.send(("read", (window, number)))
        found: bytes = self._connection.recv()
        return found

    def write(self, window: int, number: int, data: bytes) -> None:
        self.written.append((window, number, data))

    def drop(self, window: int, count: int) -> None:
        self.dropped.append((window, count))


class Host:
    """The requests that a parent may make."""

    def __init__(
        self, settings: AggregationSettings, limits: Limits, connection: Connection
    ) -> None:
        self._scripts = Scripts(settings, limits.call)
        self._operator = Aggregation(settings, self._scripts)
        self._chunks = NotedChunks(connection)
        self._operator.keep_in(self._chunks)
        self._states: OrderedDict[int, Any] = OrderedDict()
        self._number = 0

    def begin(self) -> None:
        """Begin a request."""
        self._scripts.begin()
        self._chunks.begin()

    def step(
        self, state: tuple[int, bytes | None], batch: tuple[Sequence[Input], bool], now: int, /
    ) -> Stepped | None:
        """Step the operator from the state with this number; None: the state must be sent."""
        found = self._state(*state)
        if found is None:
            return None
        records, behind = batch
        return self._kept(self._operator.step(found, records, now, behind=behind))

    def finish(self, state: tuple[int, bytes | None], now: int, /) -> Stepped | None:
        """Close what is open, like `step`."""
        found = self._state(*state)
        return None if found is None else self._kept(self._operator.finish(found, now))

    def keys(self, records: Sequence[Record], /) -> list[bytes | None]:
        """Return the key of each record, None if it has none."""
        found = self._operator.keyed(records)
        return [None if isinstance(key, DovecoteError) else key for _, key in found]

    def _state(self, number: int, data: bytes | None) -> Any:  # noqa: ANN401  # a state
        found = self._states.pop(number, None)
        return found if data is None else decoded(self._operator, data)

    def _kept(self, step: Any) -> Stepped:  # noqa: ANN401  # a step
        self._number += 1
        self._states[self._number] = step.state
        while len(self._states) > _KEPT:
            self._states.popitem(last=False)
        return Stepped(
            number=self._number,
            data=encoded(step.state),
            keys=len(step.state.keys),
            open=sum(held.window is not None for held in step.state.keys.values()),
            outputs=step.outputs,
            deadline=step.deadline,
            written=self._chunks.written,
            dropped=self._chunks.dropped,
        )


def main(connection: Connection, shared: mmap.mmap) -> None:
    """Answer requests until the connection ends."""
    # A request makes many objects without cycles, and examining them repeatedly is expensive.
    gc.set_threshold(100_000, 20, 50)
    settings: AggregationSettings = connection.recv()
    step = settings.step
    limits = Limits(shared, milliseconds=step.script_timeout, mebibytes=step.script_memory)
    limits.begin({})
    try:
        host = limits.guarded(lambda: Host(settings, limits, connection))
    except BadSettings as error:
        connection.send(("refused", str(error)))
        return
    connection.send(("done", None))
    while True:
        try:
            method, arguments, refused = connection.recv()
        except EOFError:
            return
        limits.begin(refused)
        host.begin()
        try:
            answer = "done", getattr(host, method)(*arguments)
        except Exception as error:  # noqa: BLE001  # the parent raises it
            answer = "failed", f"{type(error).__name__}: {error}"
        connection.send(answer)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), SIZE))
