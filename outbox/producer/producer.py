"""
Send events to Kafka now; what Kafka may not have taken goes through the outbox, with the same id.

The only part of what a service imports that loads a Kafka client, and only where it is asked for.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from types import TracebackType
from typing import Self

from outbox import forks
from outbox import schema as outbox_schema
from outbox.errors import ProducerClosed
from outbox.event import Event
from outbox.producer.direct import Direct, properties
from outbox.producer.fallback import Fallback
from outbox.producer.options import Counted, Options, State
from outbox.producer.routing import Lane
from outbox.producer.sender import Sender
from outbox.producer.waiting import Via, size_of
from outbox.threads import require_threads
from outbox.writing import statements, tracing

__all__ = ["Counted", "Options", "Producer", "State", "Via"]


class Producer:
    """
    Send events, of which none is lost that is accepted; the events of a key keep their order.

    Accepted is what the broker has acknowledged, or what is committed to the outbox. Copies of an
    event have its id. For any number of threads, but one producer at a time for each key.

    In a process that is forked it begins anew with the first event that is sent there: what was
    sent before is the parent's, and is not sent by the child.
    """

    def __init__(
        self,
        dsn: str,
        kafka: Mapping[str, str],
        *,
        schema: str = outbox_schema.DEFAULT_SCHEMA,
        options: Options | None = None,
        observe: Callable[[Counted, int], None] | None = None,
    ) -> None:
        """
        Begin; the servers need not be there.

        `kafka` are properties of librdkafka. `observe` is told what is counted, and how many, by
        threads of the producer; it must be quick. An exception of it is logged, the first one, and
        keeps no event from being sent.

        Raises:
            BadSettings: a property is unknown, missing, or must not be chosen, or `dsn` is no
                connection string.
            NoThreads: the threads here are greenlets, of gevent or eventlet.
        """
        require_threads("a producer", "`outbox.write` events in your own transactions")
        self._options = options = options or Options()
        self._schema, self._limits = schema, options.limits
        self._dsn, self._observe = dsn, observe
        self._configuration = properties(kafka, events=options.max_events, size=options.max_bytes)
        self._lock, self._closed = threading.Lock(), False
        self._begun: Sender | None = self._begin()
        forks.know(self)

    def _begin(self) -> Sender:
        fallback = Fallback(self._dsn, self._schema, self._limits)
        return Sender(fallback, self._connect, self._options, self._observe)

    def forked(self) -> None:
        """Leave to the parent process what is its own; whoever is forked calls this by itself."""
        if self._begun is not None:
            forks.leave(self._begun)
            self._begun.forked()
        self._lock, self._begun = threading.Lock(), None

    @property
    def _sender(self) -> Sender:
        begun = self._begun
        if begun is not None:
            return begun
        with self._lock:
            if self._begun is None:
                if self._closed:
                    msg = "the producer was closed: nothing is sent any more"
                    raise ProducerClosed(msg)
                self._begun = self._begin()
            return self._begun

    def _connect(self) -> Direct:
        return Direct(self._configuration)

    def send(self, event: Event) -> Via:
        """
        Send an event; return who has accepted it, once somebody has.

        Raises:
            InvalidEvent: it could never be published; it was not sent.
            NotAccepted: neither Kafka nor the outbox has said that it has it.
            ProducerClosed: nothing is sent any more.
        """
        return self.send_soon(event).result()

    async def send_async(self, event: Event) -> Via:
        """As `send`. Whoever cancels it takes nothing back."""
        made = self._made(event)
        sender = self._sender
        promise = sender.offer(*made, wait=False)
        if promise is None:
            promise = await asyncio.to_thread(sender.wait_and_offer, *made)
        return await asyncio.wrap_future(promise)

    def send_soon(self, event: Event) -> "Future[Via]":
        """
        Send an event, and return the promise of what `send` returns or raises.

        Waits while too much is waiting already. What the promise calls back runs in a thread of
        the producer, and must not wait for the producer.
        """
        return self._sender.wait_and_offer(*self._made(event))

    def flush(self, timeout: timedelta | None = None) -> bool:
        """Wait until all that was sent so far is accepted or refused; tell whether it is."""
        if self._begun is None:
            return True
        return self._sender.flush(None if timeout is None else timeout.total_seconds())

    def close(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """
        Wait for what was sent; what Kafka has not acknowledged by then goes into the outbox.

        What the outbox does not take within `accept_timeout` is refused.
        """
        with self._lock:
            self._closed = True
        if self._begun is not None:
            self._begun.close(timeout.total_seconds())

    @property
    def state(self) -> State:
        """How it is doing right now."""
        return self._sender.state

    def _made(self, event: Event) -> tuple[Event, Lane | None, int]:
        """Return the event as it is sent, whatever way, and which lane and how large it is."""
        key, trace = event.key_bytes(), event.traceparent or tracing.current_traceparent()
        # The value may be a list that the caller goes on to change.
        made = replace(
            event,
            key=key,
            value=event.value_bytes(),
            content_type=event.media_type(),
            traceparent=trace,
        )
        statements.append([made], schema=self._schema, limits=self._limits)
        lane = None if key is None else sha256(made.topic.encode() + b"\0" + key).digest()
        return made, lane, size_of(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)
