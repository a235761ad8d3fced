"""A capture for one shard, whose progress also moves past the events of other shards."""

import time
from collections.abc import Iterator
from dataclasses import replace

from relay.errors import Refused
from relay.rules.batch import Batch, Capture, Leave
from relay.rules.places.progress import Cursor, Origin, Place, Progress
from relay.rules.sharding import Shard

# Where only other shards have events, progress follows them this often (s). So a restart need not
# look through all of them again, and their rows can be deleted. In the log a heartbeat does that.
_EVERY = 1.0


class ShardCapture:
    """The committed events of one shard, taken from a capture that reads only these."""

    def __init__(self, capture: Capture, shard: Shard) -> None:
        self._capture, self._shard = capture, shard
        self._durable: Place | None = None
        self._durable_at = time.monotonic()

    def origin(self) -> Origin:
        return self._capture.origin()

    def resume(self, progress: Progress | None) -> Place:
        if progress is not None and progress.shards != self._shard.of:
            msg = (
                f"the progress of {progress.name!r} is that of {progress.shards} shards, not "
                f"{self._shard.of}: a change of their number was interrupted, or two outboxes "
                "share a name. Run `dovecote relay reshard` once more, or give this outbox "
                "another `name`"
            )
            raise Refused(msg)
        return self._capture.resume(progress)

    def batches(self, cursor: Place) -> Iterator[Batch]:
        for batch in self._capture.batches(cursor):
            if batch.rows or batch.keep or not self._is_due(batch.cursor):
                yield batch
            else:
                self._durable_at = time.monotonic()
                yield replace(batch, keep=True)

    def _is_due(self, cursor: Place) -> bool:
        late = time.monotonic() - self._durable_at > _EVERY
        return late and isinstance(cursor, Cursor) and cursor != self._durable

    def wait(self, seconds: float) -> None:
        self._capture.wait(seconds)

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        self._durable, self._durable_at = cursor, time.monotonic()
        self._capture.confirm(cursor, forget)

    def settle(self, leave: Leave) -> None:
        self._capture.settle(leave)

    def stay(self) -> None:
        self._capture.stay()

    def interrupt(self) -> None:
        self._capture.interrupt()

    def close(self) -> None:
        self._capture.close()
