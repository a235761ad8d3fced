"""
Get every event accepted: by Kafka while it answers, otherwise by the outbox.

One thread waits for the broker's acknowledgements, another one (`outbox.producer.spill`) for
Postgres. The thread that offers an event hands its record to the Kafka client itself, and
`outbox.producer.routing` decides which way each event goes.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import KafkaException

from outbox.errors import DovecoteError, NotAccepted, ProducerClosed
from outbox.event import Event
from outbox.producer.direct import Direct
from outbox.producer.fallback import Fallback
from outbox.producer.ledger import Ledger
from outbox.producer.options import Counted, Options, RouteState
from outbox.producer.pause import Pause
from outbox.producer.routing import Lane
from outbox.producer.spill import Spill
from outbox.producer.waiting import Via

_log = logging.getLogger("dovecote.producer")

# Seconds for one look at Kafka, and for one attempt to reach it.
_LOOK, _TRY = 0.05, 2.0
# Seconds that Postgres gets to let go of a thread of ours.
_END = 10.0


class Sender:
    """The events on their way, and the thread that speaks with Kafka."""

    def __init__(
        self,
        fallback: Fallback,
        connect: Callable[[], Direct],
        options: Options,
        observe: Callable[[Counted, int], None] | None,
    ) -> None:
        """Begin to reach for Kafka and Postgres; `connect` makes a Kafka producer."""
        self._fallback, self._connect, self._options = fallback, connect, options
        self._ledger = ledger = Ledger(options, observe)
        self._changed, self._routing, self._waiting = (
            ledger.changed,
            ledger.routing,
            ledger.waiting,
        )
        self._closing, self._ended = False, threading.Event()
        self._direct: Direct | None = None
        self._topic: str | None = None
        self._reaching = Pause(0.1, 10.0)
        self._spill = Spill(ledger, fallback, options, self._send_held)
        # Reach for Kafka before the first event, which would otherwise take the way through the
        # outbox.
        self._reach()
        self._threads = [
            threading.Thread(
                target=self._run, args=(run,), name=f"dovecote producer, {name}", daemon=True
            )
            for name, run in (("kafka", self._watch), ("outbox", self._spill.run))
        ]
        for thread in self._threads:
            thread.start()

    def offer(
        self, event: Event, lane: Lane | None, size: int, *, wait: bool = True
    ) -> "Future[Via] | None":
        """
        Take an event, and return the promise of who accepts it.

        Without `wait`, return None if there is no room for it now.

        Raises:
            ProducerClosed: the sender takes nothing any more.
        """
        with self._changed:
            while not self._closing and not self._waiting.has_room(size):
                if not wait:
                    return None
                self._changed.wait()
            if self._closing:
                msg = f"event {event.id} was not sent: the producer is closed"
                raise ProducerClosed(msg)
            return self._take(event, lane, size)

    def wait_and_offer(self, event: Event, lane: Lane | None, size: int) -> "Future[Via]":
        """As `offer`, once there is room."""
        promise = self.offer(event, lane, size)
        if promise is None:
            msg = "it waits until there is room"
            raise AssertionError(msg)
        return promise

    def _take(self, event: Event, lane: Lane | None, size: int) -> "Future[Via]":
        number, promise = self._waiting.add(event, size, time.monotonic())
        if self._routing.offer(number, lane):
            self._send(number)
        else:
            self._changed.notify_all()
        return promise

    def forked(self) -> None:
        """
        Fail all promises in a forked process: only the parent learns the answer.

        A thread that held a promise's lock at the fork does not run here, nor do its callbacks.
        """
        for number in self._waiting.numbers():
            event, promise = self._waiting[number].event, self._waiting[number].answer
            vars(promise).update(_condition=threading.Condition(), _done_callbacks=[])
            msg = f"event {event.id} was sent by the process that this one was forked from"
            promise.set_exception(NotAccepted(msg))

    def flush(self, timeout: float | None) -> bool:
        """Wait until everything offered is accepted or refused; return whether it is."""
        with self._changed:
            newest = self._waiting.newest
            return self._changed.wait_for(lambda: self._waiting.is_past(newest), timeout)

    def close(self, timeout: float) -> None:
        """Give Kafka `timeout`, then the outbox as long as it may take; refuse the rest."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if not self.flush(timeout):
            with self._changed:
                self._ledger.kafka_trouble = (
                    self._ledger.kafka_trouble or "the producer was closed"
                )
            self.flush(self._options.accept_timeout.total_seconds())
        self._ended.set()
        with self._changed:
            self._changed.notify_all()
        for patience in (_TRY, _END):
            for thread in self._threads:
                thread.join(patience)
            self._fallback.cut()
        self._refuse_all()
        self._fallback.close()

    @property
    def state(self) -> RouteState:
        """The current state."""
        with self._changed:
            return self._ledger.state

    def _send(self, number: int) -> None:
        # No event goes to Kafka after one that could not be sent: it follows that one to the
        # outbox.
        if self._ledger.kafka_trouble is not None or self._direct is None:
            return
        event = self._waiting[number].event
        try:
            self._direct.send(number, event)
        except (KafkaException, BufferError) as error:
            self._fail(str(error), event.topic)

    def _send_held(self, number: int) -> None:
        # Until now the event has waited for us, and not for the broker.
        self._waiting.renew(number, time.monotonic())
        self._send(number)

    def _run(self, run: Callable[[threading.Event], None]) -> None:
        """Run a thread; if it ends by a mistake of ours, nobody may go on waiting for it."""
        try:
            run(self._ended)
        except BaseException as error:
            self._ended.set()
            with self._changed:
                self._closing = True
                self._ledger.kafka_trouble = f"{type(error).__name__}, see the log"
            self._refuse_all()
            raise

    def _refuse_all(self) -> None:
        with self._changed:
            answers = self._ledger.refused(self._waiting.numbers())
            self._changed.notify_all()
        self._ledger.give(answers)

    def _watch(self, ended: threading.Event) -> None:
        while not ended.is_set():
            if self._direct is None:
                self._reach()
            else:
                self._look(self._direct)
            self._spill.require_answer()

    def _reach(self) -> None:
        """Try to get a producer again, after a pause that grows."""
        if self._closing or self._reaching.left:
            self._ended.wait(_LOOK)
            return
        self._reaching.longer()
        try:
            direct = self._connect()
        except DovecoteError as error:  # no token, no room for a client, a certificate in renewal
            with self._changed:
                self._ledger.kafka_trouble = str(error).removeprefix("Kafka: ")
            return
        # Without a topic to ask for, the first event will show it.
        trouble = None if self._topic is None else direct.trouble(self._topic, _TRY)
        with self._changed:
            if trouble is not None:
                self._ledger.kafka_trouble = trouble
                return
            self._direct, self._ledger.kafka_trouble = direct, None
            self._routing.restored()
            self._spill.hurry()
            self._changed.notify_all()
        self._ledger.count("restored", 1)

    def _look(self, direct: Direct) -> None:
        """Wait a little for the broker's acknowledgements, and see whether anything failed."""
        acknowledged, failure = direct.reports(_LOOK)
        with self._changed:
            accepted = self._routing.acknowledged(acknowledged)
            if accepted:
                self._reaching.shorter()
            self._fail_if(failure or self._overdue())
            broken = self._ledger.kafka_trouble
            if broken is not None:
                accepted += self._routing.acknowledged(direct.stop())
                self._direct = None
                self._routing.broken()
            self._routing.overdue(time.monotonic())
            answers = self._ledger.accepted(accepted, "kafka")
            if self._routing.backlog:
                self._changed.notify_all()
        self._ledger.give(answers)
        if broken is not None:
            _log.warning("events go through the outbox: Kafka: %s", broken)
            self._ledger.count("broken", 1)

    def _overdue(self) -> str | None:
        """
        Return the failure to report if the broker has not acknowledged an event for too long.
        """
        if (oldest := self._routing.unsure) is None:
            return None
        waited = time.monotonic() - self._waiting[oldest].since
        if waited < self._options.delivery_timeout.total_seconds():
            return None
        return f"an event was not acknowledged for {waited:.1f} s"

    def _fail_if(self, failure: str | None) -> None:
        if failure is not None:
            oldest = self._routing.unsure
            self._fail(failure, None if oldest is None else self._waiting[oldest].event.topic)

    def _fail(self, failure: str, topic: str | None) -> None:
        self._ledger.kafka_trouble = self._ledger.kafka_trouble or failure
        self._topic = topic or self._topic
