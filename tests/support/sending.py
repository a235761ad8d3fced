"""Producers whose broker acknowledges less than it does, and the fate of their events."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from outbox import Event
from outbox.producer.direct import Direct
from outbox.producer.producer import Options, Producer
from outbox.producer.waiting import Via
from tests.support.relaying import Relays, event
from tests.support.waiting import patient

SOON = Options(
    delivery_timeout=timedelta(seconds=patient(1.4)),
    accept_timeout=timedelta(seconds=90),
    fresh=True,
)


class Silent(Direct):
    """A producer that hears of no acknowledgement while it is told so: an ambiguous timeout."""

    def __init__(self, configuration: Any, is_silent: Callable[[], bool]) -> None:
        super().__init__(configuration)
        self._is_silent = is_silent

    def reports(self, timeout: float) -> tuple[list[int], str | None]:
        found, failure = super().reports(timeout)
        if found and self._is_silent():
            return [], failure or "no acknowledgement (ambiguous)"
        return found, failure

    def stop(self) -> list[int]:
        found = super().stop()
        return [] if self._is_silent() else found


class Doubtful(Producer):
    """A producer with such a broker while `doubt` is set."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.doubt = threading.Event()
        super().__init__(*arguments, **options)

    def _connect(self) -> Direct:
        return Silent(self._configuration, self.doubt.is_set)


@contextmanager
def doubtful(
    fleet: Relays, options: Options = SOON, kafka: Mapping[str, str] | None = None
) -> Iterator[Doubtful]:
    properties = {"bootstrap.servers": fleet.bootstrap, **(kafka or {})}
    with Doubtful(fleet.dsn, properties, options=options) as producer:
        yield producer


class Sent:
    """Sends numbered events, and remembers which were accepted, and by whom."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self._numbers = count()
        self.accepted: dict[str, Via] = {}
        self._via: set[Via] = set()

    def has_accepted(self, via: Via) -> bool:
        """Whether `via` has accepted an event of the `load` that is under way."""
        return via in self._via

    def next(self, key: str = "key") -> Event:
        return event(self._topic, next(self._numbers), key=key)

    def one(self, key: str = "key") -> Via:
        """Send one event, and return who accepted it."""
        sent = self.next(key)
        self.accepted[sent.id] = self._producer.send(sent)
        return self.accepted[sent.id]

    def load(self, keys: int, stop: threading.Event, *, pause: float = 0.002) -> None:
        """Send events of `keys` keys, without waiting between them, until `stop`."""
        promises: list[tuple[str, Future[Via]]] = []
        while not stop.wait(pause):
            sent = self.next(f"k{len(promises) % keys}")
            promise = self._producer.send_soon(sent)
            promise.add_done_callback(lambda done: self._via.add(done.result()))
            promises.append((sent.id, promise))
        self.accepted |= {id_: promise.result() for id_, promise in promises}
