"""Look now and then whether open transactions hold records back from a query."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from dedup.rules.unmoved import HELD_ADVICE, Partition, Unmoved, held_back, summed
from outbox.errors import DovecoteError
from spark_jobs.source.offsets import Offsets

_log = logging.getLogger("dovecote.spark")

_LOOK_SECONDS = 10.0
_AGAIN_SECONDS = 60.0
_END_SECONDS = 1.0
# How often to look, at least, until a transaction is trouble.
_LOOKS = 4


class Ends(Protocol):
    """A cluster that returns the ends of topics."""

    def latest(self, topics: Sequence[str], *, known: Sequence[str]) -> Offsets: ...
    def written(self, topics: Sequence[str], *, known: Sequence[str]) -> Offsets: ...


@dataclass(frozen=True, slots=True)
class Held:
    """The partitions that are held back, and the same in words."""

    partitions: frozenset[Partition] = frozenset()
    text: str = ""


class HeldBack:
    """
    Looks at the topics of a query, in a thread of its own.

    A query plans only up to where committed records go, so an open transaction looks to it like
    the end of a topic.
    """

    def __init__(
        self,
        cluster: Ends,
        topics: Sequence[str],
        *,
        after: float,
        found: Callable[[Held], None],
    ) -> None:
        """Report to `found` what has been held back for more than `after` seconds."""
        self._cluster, self._topics, self._found = cluster, topics, found
        self._unmoved = Unmoved(after)
        self._pause = min(_LOOK_SECONDS, after / _LOOKS)
        self._logged = -_AGAIN_SECONDS

    def look(self) -> None:
        """Look once, and report it."""
        try:
            stable = self._cluster.latest(self._topics, known=())
            written = self._cluster.written(self._topics, known=())
        except DovecoteError as error:  # the query says it, too
            _log.debug("open transactions are not looked for: %s", error)
            return
        now, places, texts = time.monotonic(), set[Partition](), list[str]()
        known = {(t, p): at for t, ends in stable.ends.items() for p, at in ends.items()}
        self._unmoved.forget(known)
        for place, at in sorted(known.items()):
            end = written.ends.get(place[0], {}).get(place[1], at)
            seconds = self._unmoved.seconds(place, at, end, now)
            if self._unmoved.is_trouble(seconds):
                places.add(place)
                texts.append(held_back(place, at, end, seconds=seconds))
        text = f"{summed(texts)}; {HELD_ADVICE}" if texts else ""
        if not text:
            self._logged = -_AGAIN_SECONDS
        elif now - self._logged >= _AGAIN_SECONDS:
            self._logged = now
            _log.warning("%s", text)
        self._found(Held(frozenset(places), text))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Look every few seconds meanwhile."""
        done = threading.Event()

        def run() -> None:
            while not done.wait(self._pause):
                self.look()

        # Kafka may be away, and the end of a job does not wait for its answer.
        thread = threading.Thread(target=run, name="held-back", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(_END_SECONDS)
