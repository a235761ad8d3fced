"""Ask a server now and then whether it answers, so that a part without work knows."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dovecote.process.states import ASK_SECONDS
from outbox.errors import first_line

# A server that did not answer is asked again earlier: its return should be seen soon.
_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """The facts that are known of a server."""

    seconds: float | None
    """How long ago it answered last; None: it never has."""
    trouble: str = ""
    """Why its last answer was none, or a refusal; empty: all was well."""


class Proof:
    """Asks in a thread of its own, so that no work waits for an answer."""

    def __init__(
        self,
        ask: Callable[[], str | None],
        *,
        close: Callable[[], object] = lambda: None,
        every: float = ASK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Ask nothing yet.

        `ask` returns what is wrong, or an empty text; None: there is no question now, and nothing
        is known. It has a time limit of its own. An exception is trouble, too. `close` lets go of
        what it asks with.
        """
        self._ask, self._close, self._every, self._clock = ask, close, every, clock
        self._lock = threading.Lock()
        self._heard: float | None = None
        self._trouble = ""

    def heard(self) -> None:
        """
        Note that the server has answered other requests just now.

        It need not be asked, and a question that it has left unanswered no longer counts.
        """
        with self._lock:
            self._heard, self._trouble = self._clock(), ""

    def seen(self) -> LastAnswer:
        with self._lock:
            ago = None if self._heard is None else max(0.0, self._clock() - self._heard)
            return LastAnswer(ago, self._trouble)

    def once(self) -> None:
        """Ask, unless the server has answered something a short while ago."""
        found, began = self.seen(), self._clock()
        if found.seconds is not None and found.seconds < self._every / 2 and not found.trouble:
            return
        try:
            trouble = self._ask()
        except Exception as error:  # noqa: BLE001  # whatever it is: it is what is to be known
            trouble = first_line(error) or type(error).__name__
        with self._lock:
            if trouble and self._heard is not None and self._heard > began:
                return  # it has answered others meanwhile
            self._trouble = trouble or ""
            if trouble is None:
                self._heard = None
            elif not trouble:
                self._heard = self._clock()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Ask in the background until the end of the block."""
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                self.once()
                found = self.seen()
                is_known = found.seconds is not None and not found.trouble
                done.wait(self._every if is_known else min(_AGAIN_SECONDS, self._every))
            self._close()

        threading.Thread(target=work, name="proof", daemon=True).start()
        try:
            yield
        finally:
            done.set()
