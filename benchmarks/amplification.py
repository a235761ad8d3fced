"""
A loop main → handler → main in which a fifth of the sends end in doubt.

Each handled record is sent round again. With ids, copies of an event are recognised and handled
once. Without ids, a send in doubt is repeated as a new event, as is often done: each copy is an
event of its own, and the loop multiplies them.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from benchmarks.harness import database, emit, relay, servers, topic, until
from dedup.rules.identity import identity
from dedup.rules.policies.policies import Handled, by_key, exact
from dedup.rules.policies.results import Again
from outbox import Event
from outbox.envelope import Record, decode
from outbox.producer.direct import Direct
from outbox.producer.producer import Options, Producer

EVENTS, ROUNDS, AMBIGUOUS = 40, 10, 0.2


@dataclass(frozen=True, slots=True)
class Round:
    """The counts of one round of the loop."""

    number: int
    sent: int
    ambiguous: int
    records: int
    handled: int


class _Doubt(Direct):
    """A producer whose broker takes every record, and sometimes fails to confirm it."""

    def __init__(
        self, configuration: Mapping[str, str | bool], is_in_doubt: Callable[[], bool]
    ) -> None:
        super().__init__(configuration)
        self._is_in_doubt = is_in_doubt

    def reports(self, timeout: float) -> tuple[list[int], str | None]:
        found, failure = super().reports(timeout)
        if found and self._is_in_doubt():
            return [], failure or "no acknowledgement"
        return found, failure


class DoubtfulProducer(Producer):
    """A producer with such a broker; events are in doubt one by one only if sent one by one."""

    def __init__(self, dsn: str, bootstrap: str, seed: int) -> None:
        """Choose the doubtful sends at the requested rate, always the same ones for one `seed`."""
        self._chance = random.Random(seed)  # noqa: S311  # a network, not a secret
        self.in_doubt = 0
        super().__init__(dsn, {"bootstrap.servers": bootstrap}, options=Options(fresh=True))

    def _connect(self) -> Direct:
        return _Doubt(self._configuration, self._is_in_doubt)

    def _is_in_doubt(self) -> bool:
        is_so = self._chance.random() < AMBIGUOUS
        self.in_doubt += is_so
        return is_so


def loop(
    bootstrap: str, dsn: str, name: str, *, ids: bool, events: int, rounds: int, seed: int = 1
) -> Iterator[Round]:
    """Send `events` round and round, and yield the counts of each round."""
    ends: dict[int, int] = {}
    with DoubtfulProducer(dsn, bootstrap, seed) as producer, _reader(bootstrap) as reader:
        going = [Event(topic=name, type="Going", key=f"k{n}", value=n) for n in range(events)]
        for number in range(rounds + 1):
            sent, in_doubt = len(going), _send(producer, going)
            records = _arrived(reader, name, ends)
            going = [_again(record, ids=ids) for record in _handled(records, ids=ids)]
            yield Round(number, sent, in_doubt, len(records), len(going))


def _send(producer: DoubtfulProducer, events: Sequence[Event]) -> int:
    """Send events one after the other; return how many were in doubt."""
    before = producer.in_doubt
    for event in events:
        until(lambda: producer.state.broker == "up", within=30, what="a producer", every=0.001)
        producer.send(event)
    # Everything that went through the outbox has arrived then, too.
    until(lambda: not producer.state.lanes, within=60, what="an empty outbox")
    return producer.in_doubt - before


def _handled(records: Sequence[Record], *, ids: bool) -> list[Record]:
    """
    Return the records that a handler gets: with ids, one of each id in a round; otherwise all.
    """
    if not ids:
        return list(records)
    verdicts = (
        verdict
        for _, of_key in by_key(records, lambda record: record.key)
        for verdict in exact(
            of_key,
            matches=lambda _: True,
            handle=lambda _: Again(timedelta(0)),
            identity=identity,
        )
    )
    return [verdict.record for verdict in verdicts if isinstance(verdict, Handled)]


def _again(record: Record, *, ids: bool) -> Event:
    """Return the event for another round, with its id or as a new event."""
    event = decode(record)
    if not ids:
        return Event(topic=event.topic, type=event.type, key=event.key, value=event.value)
    return Event(
        topic=event.topic,
        type=event.type,
        key=event.key,
        value=event.value,
        id=event.id,
        headers=[pair for pair in event.headers if not pair[0].startswith("dovecote_")],
    )


@contextmanager
def _reader(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid4().hex[:12]}",
            "enable.auto.commit": False,
            # No transaction is aborted here, and a `read_committed` reader would see each a moment
            # later.
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _arrived(consumer: Consumer, name: str, ends: dict[int, int]) -> list[Record]:
    """Return the topic's new records since the last call; `ends` remembers the position."""
    partitions = consumer.list_topics(name, timeout=10).topics[name].partitions
    consumer.assign([TopicPartition(name, number, ends.get(number, 0)) for number in partitions])
    open_, found = set(partitions), []
    while open_:
        message = consumer.poll(10)
        if message is None:
            sys.exit(f"no end of partitions {open_} within 10 s")
        number, error = int(message.partition() or 0), message.error()
        if error is not None:
            open_.discard(number)
            continue
        ends[number] = int(message.offset() or 0) + 1
        found.append(
            Record(
                name,
                number,
                ends[number] - 1,
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or [],  # type: ignore[arg-type]  # pairs
            )
        )
    return found


def report(rounds: Iterator[Round], way: str, events: int, say: Callable[..., None]) -> None:
    """Report the counts of each round, per event that there was in the beginning."""
    for each in rounds:
        say(
            "amplification",
            way=way,
            round=each.number,
            events=events,
            ambiguous_share=round(each.ambiguous / max(1, each.sent), 3),
            records_per_event=round(each.records / events, 2),
            amplification=round(each.handled / events, 2),
        )


def main() -> None:
    """Measure both ways."""
    with servers() as stack:
        for way, ids in (("same id", True), ("no ids", False)):
            dsn, name = database(stack), topic(stack)
            with relay(stack, dsn, name=name, poll_max="5ms", lease="1s"):
                rounds = loop(
                    stack.kafka.bootstrap, dsn, name, ids=ids, events=EVENTS, rounds=ROUNDS
                )
                report(rounds, way, EVENTS, emit)


if __name__ == "__main__":
    main()
