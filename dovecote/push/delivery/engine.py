"""Deliver subscriptions, each with a consumer, a loop and connections of its own."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass

from dedup.inbox.held import PostgresStates
from dedup.retries.held_states import Forgetful, States
from dovecote.process.states import State
from dovecote.push.delivery.reading import Reading
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.addresses import Network
from dovecote.push.rules.sending.ports import Book, DeliveryReport, Work
from dovecote.push.rules.subscription.subscription import Subscription
from dovecote.push.store.lease import Lease
from outbox.errors import DovecoteError

_log = logging.getLogger("dovecote.push")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_END_SECONDS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldIn:
    """The Postgres schema (of an inbox) that stores attempts and due times of held records."""

    dsn: str
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Resources that all deliveries of a process share."""

    brokers: Mapping[str, Mapping[str, str]]
    """Properties of Kafka's client, by the name that subscriptions use for a broker."""

    allow_addresses: tuple[Network, ...] = ()
    """Networks that requests may go to although they are not public."""

    ca_file: str | None = None
    """Certificate authorities to trust in addition to the system's."""

    origin: str = "dovecote"
    """Our name in the handshake of CloudEvents webhooks."""

    held: HeldIn | None = None
    """None: attempts are counted from the start again after a restart or rebalance."""

    def lease(self, subscription: Subscription) -> Lease | None:
        """Return a lease that keeps other processes from reading the same explicit partitions."""
        if self.held is None or not subscription.partitions:
            return None
        return Lease(self.held.dsn, self.held.schema, subscription.id)

    def states(self, group: str) -> AbstractContextManager[States]:
        """Return the store for a group's held records."""
        if self.held is None:
            return nullcontext(Forgetful())
        return closing(PostgresStates(self.held.dsn, group, self.held.schema))


class Engine:
    """
    Implements the API's `Delivers`.

    It calls `crowded` with the number of subscriptions each time that it gets its work.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        book: Book,
        *,
        metrics: Metrics | None = None,
        crowded: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._surroundings, self._book, self._crowded = surroundings, book, crowded
        self.metrics = metrics or Metrics()
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._ended = False
        self._readers = 0

    def start(self) -> None:
        """Start the engine; it then takes work."""
        self._ended = False

    def stop(self) -> None:
        """End all deliveries at the same time, and return when they have ended."""
        with self._lock:
            self._ended = True
            workers = list(self._workers.values())
            self._workers.clear()
        for worker in workers:
            worker.want(None)
        deadline = time.monotonic() + _END_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def reconcile(self, work: Sequence[Work]) -> None:
        """Deliver these subscriptions and no others; returns at once, and the others end later."""
        wanted = {each.subscription.id: each for each in work}
        with self._lock:
            if self._ended:
                return
            self._readers = len(wanted)
            for id_, worker in self._workers.items():
                if id_ not in wanted:
                    worker.want(None)
            for id_ in [id_ for id_, worker in self._workers.items() if worker.over]:
                del self._workers[id_]
                self.metrics.forget(id_)
            for id_, each in wanted.items():
                found = self._workers.get(id_)
                # A worker that is about to end takes no more work: another one follows it.
                if found is None or not found.want(each):
                    previous = None if found is None else found.join
                    self._workers[id_] = _Worker(each, self._reading, previous)
            self._crowded(len(self._workers))

    def snapshot(self) -> Mapping[str, DeliveryReport]:
        """Return the state of each subscription."""
        with self._lock:
            return {id_: worker.snapshot() for id_, worker in self._workers.items()}

    def _reading(self, work: Work) -> Reading:
        subscription = work.subscription
        kafka = self._surroundings.brokers.get(subscription.broker)
        if kafka is None:
            msg = f"there is no broker {subscription.broker!r} in the settings of this process"
            raise DovecoteError(msg)
        return Reading(
            subscription,
            kafka,
            book=self._book,
            numbers=self.metrics.of(subscription.id),
            states=self._surroundings.states(subscription.group_id),
            allowed=self._surroundings.allow_addresses,
            ca_file=self._surroundings.ca_file,
            origin=self._surroundings.origin,
            lease=self._surroundings.lease(subscription),
            readers=self._readers,
        )


class _Worker:
    """A thread that delivers one subscription for as long as it is wanted."""

    def __init__(
        self,
        work: Work,
        reading: Callable[[Work], Reading],
        after: Callable[[float], None] | None,
    ) -> None:
        self._wanted: Work | None = work
        self._make, self._after = reading, after
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._reading: Reading | None = None
        self._trouble = ""
        self._thread = threading.Thread(
            target=self._run, name=f"push-{work.subscription.id}", daemon=True
        )
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def want(self, work: Work | None) -> bool:
        """Continue with this work, or end; return whether the worker takes it."""
        with self._lock:
            if self._wanted is None or self.over:
                return work is None
            if work is not None and work.version == self._wanted.version:
                return True
            self._wanted = work
            self._changed.set()
            if self._reading is not None:
                self._reading.stop()
            return True

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def snapshot(self) -> DeliveryReport:
        with self._lock:
            reading, trouble = self._reading, self._trouble
        if reading is not None:
            return reading.snapshot()
        state = State.FAILING if trouble else State.STARTING
        reason = trouble or "it has not begun to read yet"
        return DeliveryReport(running=False, trouble=trouble, state=state, reason=reason)

    def _run(self) -> None:
        if self._after is not None:
            self._after(_END_SECONDS)
        pause = _FIRST_PAUSE
        while (work := self._next()) is not None:
            began = time.monotonic()
            try:
                self._deliver(work)
            except Exception as error:  # noqa: BLE001  # it must not end the others
                self._failed(work, error)
                if time.monotonic() - began > _LONGEST_PAUSE:
                    pause = _FIRST_PAUSE
                self._changed.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _next(self) -> Work | None:
        with self._lock:
            self._changed.clear()
            return self._wanted

    def _deliver(self, work: Work) -> None:
        reading = self._make(work)
        with self._lock:
            if self._wanted is not work:
                return
            self._reading, self._trouble = reading, ""
        try:
            reading.run()
        finally:
            with self._lock:
                self._reading = None

    def _failed(self, work: Work, error: Exception) -> None:
        with self._lock:
            self._trouble = str(error) or type(error).__name__
        told = error if isinstance(error, DovecoteError | ValueError) else None
        _log.error("%s starts again: %s", work.subscription.id, error, exc_info=told is None)
