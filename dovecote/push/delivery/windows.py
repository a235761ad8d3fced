"""The windows of all partitions of a subscription, and the requests that wait for them."""

import asyncio
from collections.abc import Callable, Collection

from dovecote.push.rules.pacing.window import Window

_LONGEST_SECONDS = 2.0


class Windows:
    """
    Admits records in the order of their offsets, a limited number per partition; for one loop.
    """

    def __init__(self, make: Callable[[str], Window], hurry: Callable[[], None]) -> None:
        self._make, self._hurry = make, hurry
        self._windows: dict[tuple[str, int], Window] = {}
        self._waiting: dict[tuple[str, int], dict[int, asyncio.Future[None]]] = {}
        self._ending = False

    async def enter(self, topic: str, partition: int, offset: int) -> bool:
        """Wait until the record may be begun; False: it may not yet, ask again."""
        place = (topic, partition)
        window = self._windows.get(place)
        if window is None:
            window = self._windows[place] = self._make(topic)
        if window.begins(offset):
            return not self._ending
        if self._ending:
            return False
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        # Not for ever: giving up a partition waits for the requests in here.
        timer = loop.call_later(_LONGEST_SECONDS, _wake, turn)
        self._waiting.setdefault(place, {})[offset] = turn
        try:
            await turn
        finally:
            timer.cancel()
            self._waiting[place].pop(offset, None)
        return window.begins(offset) and not self._ending

    def finished(self, topic: str, partition: int, offset: int) -> None:
        """Mark a record as finished; a full bundle is committed at once."""
        window = self._windows.get((topic, partition))
        if window is not None and window.finished(offset):
            self._hurry()

    def committed(self, topic: str, partition: int, position: int) -> None:
        """Admit the records that a commit makes room for."""
        place = (topic, partition)
        window = self._windows.get(place)
        if window is None:
            return
        window.committed(position)
        for offset, turn in self._waiting.get(place, {}).items():
            if not window.begins(offset):
                break
            _wake(turn)

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Start partitions over: another process may have had them meanwhile."""
        for place in partitions:
            self._windows.pop(place, None)
            for turn in self._waiting.get(place, {}).values():
                _wake(turn)

    def end(self) -> None:
        """Admit no more records, and send away those that wait."""
        self._ending = True
        for waiting in self._waiting.values():
            for turn in waiting.values():
                _wake(turn)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
