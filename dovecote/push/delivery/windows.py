"""The windows of all partitions of a subscription, and who waits for them; one loop's alone."""

import asyncio
from collections.abc import Callable, Collection

from dovecote.push.rules.pacing.window import Window

_LONGEST_SECONDS = 2.0


class Windows:
    """Lets records be begun by the order of their offsets, so many of a partition."""

    def __init__(self, make: Callable[[str], Window], hurry: Callable[[], None]) -> None:
        self._make, self._hurry = make, hurry
        self._windows: dict[tuple[str, int], Window] = {}
        self._waiting: dict[tuple[str, int], dict[int, asyncio.Future[None]]] = {}
        self._ending = False

    async def enter(self, topic: str, partition: int, offset: int) -> bool:
        """Wait until the record may be begun; False: ask again, it may not yet."""
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
        # Not for ever: a partition that is given up waits for those who are in here.
        timer = loop.call_later(_LONGEST_SECONDS, _tell, turn)
        self._waiting.setdefault(place, {})[offset] = turn
        try:
            await turn
        finally:
            timer.cancel()
            self._waiting[place].pop(offset, None)
        return window.begins(offset) and not self._ending

    def finished(self, topic: str, partition: int, offset: int) -> None:
        """Take a record as finished; a full bundle is committed at once."""
        window = self._windows.get((topic, partition))
        if window is not None and window.finished(offset):
            self._hurry()

    def committed(self, topic: str, partition: int, position: int) -> None:
        """Let those be begun that a commit makes room for."""
        place = (topic, partition)
        window = self._windows.get(place)
        if window is None:
            return
        window.committed(position)
        for offset, turn in self._waiting.get(place, {}).items():
            if not window.begins(offset):
                break
            _tell(turn)

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Begin partitions anew: somebody else may have had them meanwhile."""
        for place in partitions:
            self._windows.pop(place, None)
            for turn in self._waiting.get(place, {}).values():
                _tell(turn)

    def end(self) -> None:
        """Let nobody in any more, and send away who waits."""
        self._ending = True
        for waiting in self._waiting.values():
            for turn in waiting.values():
                _tell(turn)


def _tell(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
