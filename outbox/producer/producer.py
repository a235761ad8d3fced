"""
Send events to Kafka at once; those that Kafka may not have taken go through the outbox.

Both copies have the same id. A service loads a Kafka client only by importing this module.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Self

from outbox import forks
from outbox import schema as outbox_schema
from outbox.errors import BadSettings, ProducerClosed
from outbox.event import Event
from outbox.postgres.session import parsed
from outbox.producer.direct import Direct, properties
from outbox.producer.fallback import Fallback
from outbox.producer.options import Counted, Options, RouteState
from outbox.producer.routing import Lane
from outbox.producer.sender import Sender
from outbox.producer.waiting import Via, size_of
from outbox.secrets import asked
from outbox.threads import require_threads
from outbox.tracing import gate
from outbox.tracing.headers import with_trace
from outbox.writing import statements
from outbox.writing.declared import to_event

__all__ = ["Counted", "Options", "Producer", "RouteState", "Via"]


class Producer:
    """
    Send events without losing one that was accepted; events with the same key keep their order.

    An event is accepted once the broker has acknowledged it, or once it is committed to the
    outbox. All copies of an event have its id. Any number of threads may share a producer, but
    each key must have only one producer at a time.

    In a forked process it begins anew with the first event that is sent there. Events sent before
    belong to the parent; the child does not send them.
    """

    def __init__(
        self,
        dsn: str | Callable[[], str],
        kafka: Mapping[str, Any],
        *,
        schema: str = outbox_schema.DEFAULT_SCHEMA,
        options: Options | None = None,
        observe: Callable[[Counted, int], None] | None = None,
    ) -> None:
        """
        Begin; the servers need not be reachable.

        `kafka` holds properties of librdkafka, and may have a table `identity` as in settings
        files. A function in place of `dsn` or of a property returns its text; it is called again
        for each connection and each Kafka client, so that a password may change. While it raises,
        or returns no text that can be right, its last text is used.

        The producer's threads call `observe` with the name of a counter and a count; it must be
        quick. Its first exception is logged, and none of them keeps an event from being sent.

        Raises:
            BadSettings: a property is unknown, missing, or must not be chosen, or `dsn` is not a
                connection string.
            NoThreads: the threads here are greenlets, of gevent or eventlet.
            NoClient: the process has no room for another client of Kafka.
        """
        require_threads("a producer", "`outbox.write` events in your own transactions")
        self._options = options = options or Options()
        self._schema, self._limits = schema, options.limits
        try:
            self._dsn = asked(dsn, "dsn", parsed)
            given = {
                name: value if isinstance(value, Mapping) else asked(value, f"kafka: {name}")
                for name, value in kafka.items()
            }
        except ValueError as error:
            raise BadSettings(str(error)) from error
        self._observe = observe
        self._configuration = properties(given, events=options.max_events, size=options.max_bytes)
        self._lock, self._closed = threading.Lock(), False
        self._begun: Sender | None = self._begin()
        forks.know(self)

    def _begin(self) -> Sender:
        fallback = Fallback(self._dsn, self._schema, self._limits)
        return Sender(fallback, self._connect, self._options, self._observe)

    def forked(self) -> None:
        """
        Leave the parent process what belongs to it; called automatically in a forked process.
        """
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

    def send(self, event: Event[Any] | object) -> Via:
        """
        Send an event; return who has accepted it, once it is accepted.

        Raises:
            InvalidEvent: it could never be published; it was not sent.
            NotAccepted: neither Kafka nor the outbox has confirmed that it has the event.
            ProducerClosed: the producer sends nothing any more.
        """
        return self.send_soon(event).result()

    async def send_async(self, event: Event[Any] | object) -> Via:
        """As `send`. Cancelling does not take the event back."""
        whole = to_event(event)
        span = gate.sending(whole)
        try:
            made = self._made(whole, span)
            sender = self._sender
            promise = sender.offer(*made, wait=False)
            if promise is None:
                promise = await asyncio.to_thread(sender.wait_and_offer, *made)
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise
        if span is not None:
            promise.add_done_callback(span.done)
        return await asyncio.wrap_future(promise)

    def send_soon(self, event: Event[Any] | object) -> "Future[Via]":
        """
        Send an event, and return the promise of what `send` returns or raises.

        Waits while too much is waiting already. Callbacks of the promise run in a thread of the
        producer, and must not wait for the producer.
        """
        whole = to_event(event)
        span = gate.sending(whole)
        try:
            promise = self._sender.wait_and_offer(*self._made(whole, span))
        except BaseException as error:
            if span is not None:
                span.failed(error)
            raise
        if span is not None:
            promise.add_done_callback(span.done)
        return promise

    def flush(self, timeout: timedelta | None = None) -> bool:
        """Wait until all events sent so far are accepted or refused; return whether they are."""
        if self._begun is None:
            return True
        return self._sender.flush(None if timeout is None else timeout.total_seconds())

    def close(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """
        Wait for what was sent; what Kafka has not acknowledged by then goes into the outbox.

        Events that the outbox does not take within `accept_timeout` are refused.
        """
        with self._lock:
            self._closed = True
        if self._begun is not None:
            self._begun.close(timeout.total_seconds())

    @property
    def state(self) -> RouteState:
        """The producer's current state."""
        return self._sender.state

    def _made(
        self, event: Event, span: "gate.BegunSending | None" = None
    ) -> tuple[Event, Lane | None, int]:
        """Return the event as either way sends it, its lane and its size."""
        key, trace, headers = event.key_bytes(), event.traceparent, event.headers
        if trace is None:
            found = gate.carried(event) if span is None else span.headers
            if found:
                trace, headers = with_trace(event, found)
        # The value may be a list that the caller changes later.
        made = replace(
            event,
            key=key,
            value=event.value_bytes(),
            content_type=event.media_type(),
            traceparent=trace,
            headers=headers,
        )
        statements.append([made], schema=self._schema, limits=self._limits)
        lane = None if key is None else sha256(made.topic.encode() + b"\0" + key).digest()
        return made, lane, size_of(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)
