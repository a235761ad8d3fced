"""Run consumers in tests: in a thread, with a handler that records what it gets."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from dedup.consumer import Consumer
from dedup.retries.aside import Aside
from dedup.rules.policies.results import Result
from dedup.settings.consumer import ConsumerSettings
from outbox import Event
from outbox.envelope import encode
from tests.support.waiting import patient, until

# The group's coordinator is not known yet, or is moving.
_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
}

Handle = Callable[[Event], Result | None]


@contextmanager
def consumes(consumer: Consumer) -> Iterator[None]:
    """Run a consumer in a thread until the end of the block."""
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(patient(40))
        assert not thread.is_alive()


@dataclass
class Consuming:
    """A running consumer, and the records that it handled."""

    consumer: Consumer
    handled: list[Event] = field(default_factory=list)
    failure: BaseException | None = None

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.handled]

    def of_key(self, key: str) -> list[str]:
        return [event.id for event in self.handled if event.key == key]

    def has_handled(self, number: int, *, within: float = 20) -> None:
        until(lambda: len(self.handled) >= number, within=within, what=f"{number} handled")

    def count(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels."""
        return sum(
            sample.value
            for metric in self.consumer.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == f"dovecote_consumer_{name}"
            and labels.items() <= sample.labels.items()
        )


def settings(bootstrap: str, topic: str, **given: Any) -> ConsumerSettings:
    kafka = {"bootstrap.servers": bootstrap, **given.pop("kafka", {})}
    defaults = {"topics": [topic], "group": topic, "commit_every": "100ms", "drain": "5s"}
    return ConsumerSettings.model_validate({**defaults, **given, "kafka": kafka})


@contextmanager
def consuming(
    bootstrap: str,
    topic: str,
    handle: Handle = lambda _: None,
    *,
    aside: Aside | None = None,
    awaited: bool = False,
    **given: Any,
) -> Iterator[Consuming]:
    """Run a consumer until the end of the block; its group is named like the topic."""
    running: Consuming

    def sync(event: Event, _tx: object = None) -> Result | None:
        running.handled.append(event)
        return handle(event)

    async def on_loop(event: Event) -> Result | None:
        running.handled.append(event)
        await asyncio.sleep(0)
        return handle(event)

    consumer = Consumer(
        settings(bootstrap, topic, **given), on_loop if awaited else sync, aside=aside
    )
    running = Consuming(consumer)

    def run() -> None:
        try:
            consumer.run()
        except BaseException as error:  # noqa: BLE001  # raised again at the end of the block
            running.failure = error

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield running
    finally:
        consumer.stop()
        thread.join(patient(30))
        assert not thread.is_alive(), "the consumer does not end"
        if running.failure is not None:
            raise running.failure


@contextmanager
def member(folder: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dovecote consume run` with the `c.toml` of a folder; its output is in `log`."""
    command = [str(Path(sys.executable).with_name("dovecote")), "consume", "run", "-c", "c.toml"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stderr=log, env={**os.environ, **environ})
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(patient(30))


def event(topic: str, key: str | None, number: int, value: object = None) -> Event:
    return Event(
        topic=topic, key=key, type="Tested", id=f"{key}-{number}", value=value or {"n": number}
    )


def produce(bootstrap: str, *events: Event, partition: int | None = None) -> None:
    """Produce events and wait until all are there."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
        }
    )
    for each in events:
        key, value, headers = encode(each)
        extra = {} if partition is None else {"partition": partition}
        producer.produce(each.topic, value, key, headers=headers, **extra)  # type: ignore[arg-type]  # invariant list, only read
    assert producer.flush(patient(30)) == 0


def transact(bootstrap: str, *events: Event, commit: bool = True) -> None:
    """Produce events in one transaction, and commit or abort it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid4().hex})
    producer.init_transactions(patient(20))
    producer.begin_transaction()
    for each in events:
        key, value, headers = encode(each)
        producer.produce(each.topic, value, key, headers=headers)  # type: ignore[arg-type]  # invariant list, only read
    producer.flush(patient(20))
    if commit:
        producer.commit_transaction(patient(20))
    else:
        producer.abort_transaction(patient(20))


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[None]:
    """Hold a transaction open that has written to a topic, and abort it at the end."""
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid4().hex})
    writer.init_transactions(patient(20))
    writer.begin_transaction()
    writer.produce(topic, b"1", b"k")
    writer.flush(patient(20))
    try:
        yield
    finally:
        writer.abort_transaction(patient(20))


def committed(
    bootstrap: str, topic: str, partition: int = 0, *, group: str | None = None
) -> tuple[int, str | None]:
    """
    Return the offset and metadata that a group has committed; by default, the topic's namesake.
    """
    client = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": group or topic})
    try:
        (found,) = client.committed([TopicPartition(topic, partition)], timeout=patient(20))
    except KafkaException as error:
        if error.args[0].code() not in _MOVING:
            raise
        return -1, None
    else:
        return found.offset, found.metadata
    finally:
        client.close()


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Return the high watermark of a partition."""
    client = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": "tests"})
    try:
        _, end = client.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=patient(20)
        )
        return end
    finally:
        client.close()
