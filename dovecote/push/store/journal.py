"""Write the engine's notes to the database in the background: the engine never waits for it."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from dovecote.process.logs import one_line
from dovecote.push.errors import RequestRefused
from dovecote.push.rules.reversals import Reversals
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.store.notes import RING, AttemptCounts, Notes
from dovecote.push.store.store import Store
from outbox.errors import DovecoteError

_log = logging.getLogger("dovecote.push")


class Journal:
    """
    The engine's `Book`: its own thread writes, once a second at most.

    For each subscription it keeps the last attempts and counts the others. While Postgres is away,
    or fails in any other way, both wait in memory, which they do not fill. It lets go of what
    Postgres refuses to keep.
    """

    def __init__(self, store: Store, notes: Notes, *, every: float = 1.0) -> None:
        self._store, self._notes, self._every = store, notes, every
        self._lock = threading.Lock()
        self._attempts: dict[str, deque[AttemptReport]] = {}
        self._counts: dict[str, list[int]] = {}
        self._gone: dict[tuple[str, str], str] = {}
        self._reversals = Reversals()
        self.turned = threading.Event()
        """Set whenever a subscription begins or ends to fail."""
        self.trouble = ""
        """Why nothing is written for now; empty: it is."""
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="push-journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, and end."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def attempted(self, attempt: AttemptReport) -> None:
        """Note an attempt."""
        id_ = attempt.subscription
        with self._lock:
            ring = self._attempts.get(id_)
            if ring is None:
                ring = self._attempts[id_] = deque(maxlen=RING)
                self._counts[id_] = [0, 0, 0]
            ring.append(attempt)
            counts = self._counts[id_]
            counts[0] += attempt.outcome == "delivered"
            counts[1] += attempt.outcome not in {"delivered", "limited"}
            counts[2] += attempt.outcome == "dead"
            if attempt.outcome != "limited" and self._reversals.add(
                id_, failed=attempt.outcome != "delivered"
            ):
                self.turned.set()

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Disable a subscription in the database, which notifies every process."""
        with self._lock:
            self._gone[id_, url] = reason
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._every)
            if self._stop.is_set():
                break
            self._wake.clear()
            self._write_and_say()
        self._write_and_say()

    def _write_and_say(self) -> None:
        found = [self._or_later(write) for write in (self._disable, self._write)]
        self.trouble = next(filter(None, found), "")

    def _or_later(self, write: Callable[[], None]) -> str:
        """Return why it is done later; empty: it is done, or never will be."""
        try:
            write()
        except RequestRefused as error:
            _log.warning("some attempts are not recorded: %s", error)
        except DovecoteError as error:
            _log.warning("attempts are not recorded for now: %s", error)
            return str(error)
        except Exception as error:  # noqa: BLE001  # without this thread nothing more would be written
            _log.exception("attempts are not recorded for now")
            return f"{type(error).__name__}: {one_line(str(error))}"
        return ""

    def _disable(self) -> None:
        with self._lock:
            gone = dict(self._gone)
        for (id_, url), reason in gone.items():
            if self._store.disable(id_, url, reason):
                _log.warning("subscription %s is disabled: %s", id_, reason)
            with self._lock:
                self._gone.pop((id_, url), None)

    def _write(self) -> None:
        with self._lock:
            attempts, self._attempts = self._attempts, {}
            counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            self._notes.write(
                {id_: tuple(ring) for id_, ring in attempts.items()},
                {id_: AttemptCounts(*numbers) for id_, numbers in counts.items()},
            )
        except RequestRefused:
            raise  # it would be refused again, and with it all that comes later
        except Exception:
            self._take_back(attempts, counts)
            raise

    def _take_back(
        self, attempts: dict[str, deque[AttemptReport]], counts: dict[str, list[int]]
    ) -> None:
        with self._lock:
            for id_, ring in attempts.items():
                ring.extend(self._attempts.get(id_, ()))
                self._attempts[id_] = ring
                newer = self._counts.get(id_, [0, 0, 0])
                self._counts[id_] = [a + b for a, b in zip(counts[id_], newer, strict=True)]
