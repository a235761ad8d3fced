"""The lives of events, in the form of the API; few searches run at a time."""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dovecote.console.asked import ConsoleError
from dovecote.observe.find import Query, find
from dovecote.observe.sources import WatchSettings

_AT_ONCE = 2


class LifeFinder:
    """Looks through all parts of a settings file."""

    def __init__(self, watch: WatchSettings) -> None:
        self._watch = watch
        self._turns = threading.Semaphore(_AT_ONCE)

    def life(
        self, id_: str | None, key: str | None, topic: str | None, since: datetime | None
    ) -> Mapping[str, Any]:
        """
        Return the life of an event, or of the events of a key.

        Raises:
            BadSettings: nothing can be looked for like this.
            ConsoleError: others are searching.
        """
        if not self._turns.acquire(blocking=False):
            msg = f"{_AT_ONCE} searches are under way"
            raise ConsoleError(429, msg, "ask again when they have ended")
        try:
            given = None if key is None else key.encode()
            return find(self._watch, Query(id=id_, key=given, topic=topic, since=since)).as_json()
        finally:
            self._turns.release()
