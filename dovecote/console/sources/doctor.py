"""Ask the doctor of the relay about an outbox, rarely and beside the requests."""

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from dovecote.console.shapes import FindingShape
from dovecote.observe.sources import OutboxSource
from outbox.errors import DovecoteError
from relay.operating.doctor import examine
from relay.rules.sharding import divided
from relay.settings import RelaySettings

_log = logging.getLogger("dovecote.console")

_KEPT = 60.0
_PATIENCE = 3.0


class OutboxDoctor:
    """Findings about outboxes; each is examined at most once a minute, and one at a time."""

    def __init__(self, sources: Mapping[str, OutboxSource]) -> None:
        self._sources = sources
        self._pool = ThreadPoolExecutor(1, "doctor")
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[float, Future[list[FindingShape]]]] = {}

    def findings(self, outbox: str) -> list[FindingShape] | None:
        """Return the findings; None: they take longer, and are there when it is asked again."""
        if outbox not in self._sources:
            return None
        with self._lock:
            at, future = self._asked.get(outbox, (0.0, None))
            if future is None or (future.done() and time.monotonic() - at > _KEPT):
                future = self._pool.submit(self._examine, self._sources[outbox])
                self._asked[outbox] = (time.monotonic(), future)
        wait([future], _PATIENCE)
        return future.result() if future.done() else None

    def close(self) -> None:
        """Examine nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _examine(source: OutboxSource) -> list[FindingShape]:
        settings = relay_settings(source)
        try:
            return [
                FindingShape(level=each.level, text=each.what, todo=each.resolve)
                for shard in divided(source.name, source.shards)
                for each in examine(settings, shard if source.shards > 1 else None)
            ]
        except DovecoteError as error:
            return [FindingShape(level="fail", text=str(error), todo="see docs/console.md")]


def relay_settings(source: OutboxSource) -> RelaySettings:
    """Return the settings of a relay of this outbox, as far as a look from outside needs them."""
    made = RelaySettings.model_validate(
        {"dsn": "dbname=outbox", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}}
    )
    return made.model_copy(
        update={
            "dsn": source.dsn,
            "kafka": dict(source.kafka),
            "schema_name": source.schema_name,
            "name": source.name,
            "progress_topic": source.progress_topic,
            "shards": source.shards,
        }
    )
