"""Publishers of both modes, with a progress topic of their own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar
from uuid import uuid4

from confluent_kafka import Message

from outbox import Event
from outbox.envelope import encode
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.properties import producer_properties
from relay.kafka.publisher import (
    IdempotentPublisher,
    Publisher,
    PublisherInTurn,
    TransactionalPublisher,
)
from relay.rules.places.progress import Cursor, Origin, Progress, at
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import Row
from tests.support.relaying import Watch, event
from tests.support.waiting import consume, patient, until

MODES = ("exactly_once", "at_least_once")
POSITIONS = count(1)
One = TypeVar("One", TransactionalPublisher, IdempotentPublisher)


@dataclass
class Setting:
    """One outbox's place in the broker: its name and its progress topic."""

    bootstrap: str
    mode: str
    progress_topic: str
    name: str = field(default_factory=lambda: f"shop-{uuid4().hex[:12]}")
    told: list[str] = field(default_factory=list)
    stopped: bool = False

    @contextmanager
    def publisher(
        self, *, timeout: float = 20.0, bootstrap: str = "", **given: str
    ) -> Iterator[Publisher]:
        """Yield an open publisher, and close it."""
        with closing(self._make(timeout, bootstrap or self.bootstrap, given)) as publisher:
            publisher.open()
            yield publisher

    def _make(self, timeout: float, bootstrap: str, given: Mapping[str, str]) -> Publisher:
        if self.mode == "at_least_once":
            return self._one(IdempotentPublisher, "", timeout, bootstrap, given)
        ids = (self.name, f"{self.name}.second-turn")
        return PublisherInTurn(
            [self._one(TransactionalPublisher, id_, timeout, bootstrap, given) for id_ in ids]
        )

    def _one(
        self, kind: type[One], id_: str, timeout: float, bootstrap: str, given: Mapping[str, str]
    ) -> One:
        properties = producer_properties(
            {
                "bootstrap.servers": bootstrap,
                "topic.metadata.propagation.max.ms": "300",
                **{name.replace("_", "."): value for name, value in given.items()},
            },
            mode="exactly_once" if self.mode == "exactly_once" else "at_least_once",
            transactional_id=id_,
            transaction_timeout=timeout,
        )
        return kind(
            properties,
            self.progress_topic,
            timeout=timeout,
            grace=0.5,
            stopped=lambda: self.stopped,
            slow=self.told.append,
        )

    def progress(self, position: int = 0) -> Progress:
        origin = Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1))
        return at(self.name, origin, Cursor(Snapshot(5, 5), Snapshot(9, 9), position))

    def newest(self) -> Progress | None:
        return ProgressTopic(
            self.progress_topic, {"bootstrap.servers": self.bootstrap}, timeout=patient(10)
        ).peek(self.name)


def row(made: Event) -> Row:
    """Return an event as the capture reads it."""
    key, value, _ = encode(made)
    names = [name for name, _ in made.headers]
    values = [data for _, data in made.headers]
    since_2000 = int(made.time.timestamp() * 1_000_000) - 946_684_800_000_000
    return (
        next(POSITIONS), made.id, since_2000, made.topic, key, value, made.type, made.source,
        made.subject, made.media_type(), names, values,
    )  # fmt: skip


def rows(topic: str, numbers: Sequence[int], *, keys: int = 5) -> list[Row]:
    return [row(event(topic, number, key=f"k{number % keys}")) for number in numbers]


def visible(bootstrap: str, topic: str, start: Mapping[int, int] | None = None) -> list[Message]:
    """Return what a reader sees once Kafka is done: it answers a commit before its markers."""
    with closing(Watch(bootstrap, topic)) as watch:
        until(lambda: watch.in_flight() == 0, within=10, what="the markers of a commit")
    return consume(bootstrap, topic, start=start)
