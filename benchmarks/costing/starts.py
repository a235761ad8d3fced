"""Measure the time from the start of a part's process to its first event."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TypeAlias
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness, pushed
from benchmarks.costing.imports import bytecode_in
from benchmarks.costing.parts import HANDLED, PARTS, Place, prepare, running, subscribe
from benchmarks.costing.processes import used
from dovecote.devstack import Stack
from outbox import Event, write

_LONGEST_SECONDS = 120.0
# Two processes that start join one after the other, and each join has two rounds of 3 s at most.
_REBALANCES_SECONDS = 12.0

_Next: TypeAlias = Callable[[], float | None]
"""Returns when an event came that has not been returned yet, if one has come."""


def measure(stack: Stack, rounds: int) -> None:
    """
    Print a line for each part: without bytecode, and with it.

    An event waits in each case. Each part has run once, so that its groups and topics are there.
    """
    for name in ("relay", "consumer", "consumer, processes = 2", "push", "push, processes = 2"):
        with (
            tempfile.TemporaryDirectory() as folder,
            pushed.target() as target,
        ):
            at = prepare(stack, Path(folder))
            if name.startswith("push"):
                subscribe(at, target.url("fast"))
            events = Events(at, target)
            _start(name, events, Path(folder) / "bytecode-of-the-first")
            for state in ("without", "with"):
                found = [
                    _start(name, events, Path(folder) / _bytecode(state, number))
                    for number in range(rounds + (state == "with"))
                ]
                # The first start with bytecode makes it.
                counted = found[1:] if state == "with" else found
                harness.emit(
                    "costs_start",
                    part=name,
                    bytecode=state,
                    rounds=rounds,
                    first_event_s=round(median(each["seconds"] for each in counted), 3),
                    cpu_s=round(median(each["cpu"] for each in counted), 3),
                )


def _bytecode(state: str, number: int) -> str:
    return f"bytecode-{state}" + (f"-{number}" if state == "without" else "")


class Events:
    """Puts events where a part finds them, and says when they come out."""

    def __init__(self, at: Place, target: pushed.Target) -> None:
        self.at, self._target = at, target
        self.numbers = 0
        self._producing = pushed.Records(at.stack.kafka.bootstrap, linger=0)

    def add(self, part: str) -> _Next:
        """Add an event for `part`; return what says when it came out, on the monotonic clock."""
        number, self.numbers = self.numbers, self.numbers + 1
        if part == "relay":
            return self._to_outbox()
        self._producing.produce(self.at.topic, number, 1)
        self._producing.flush()
        if part.startswith("push"):
            return lambda: self._target.told(number, 1)["times"][0] or None
        return lambda: self._handled(number)

    def _handled(self, number: int) -> float | None:
        file = self.at.folder / HANDLED
        lines = file.read_text(encoding="utf-8").split() if file.exists() else []
        return float(lines[number]) if len(lines) > number else None

    def _to_outbox(self) -> _Next:
        consumer = _at_the_end(self.at)
        event = Event(topic=self.at.topic, type="Benched", source="/bench", key="key", value=b"x")
        with psycopg.connect(self.at.dsn) as conn:
            write(conn, event)

        def came() -> float | None:
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                return None
            now = time.monotonic()
            consumer.close()
            return now

        return came


def _at_the_end(at: Place) -> Consumer:
    """Return a `read_committed` consumer that reads what comes from now on."""
    consumer = Consumer(
        {
            "bootstrap.servers": at.stack.kafka.bootstrap,
            "group.id": f"costs-{uuid4().hex[:8]}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10_000,
        }
    )
    places = [TopicPartition(at.topic, number) for number in range(harness.PARTITIONS)]
    for each in places:
        each.offset = consumer.get_watermark_offsets(each, timeout=30)[1]
    consumer.assign(places)
    return consumer


def _start(part: str, events: Events, bytecode: Path) -> Mapping[str, float]:
    """Start a part for which an event waits; return the seconds until it came out."""
    came = events.add(part)
    environ = bytecode_in(bytecode)
    began = time.monotonic()
    with running(PARTS[part], events.at, environ) as process:
        at: list[float] = []

        def has_come() -> bool:
            found = came()
            if found is not None:
                at.append(found)
            return found is not None

        harness.until(has_come, within=_LONGEST_SECONDS, what=f"the first event of {part}")
        cpu = used(process.pid).cpu
        if PARTS[part].processes > 1:
            # A member that ends while its group rebalances keeps the next ones waiting, until its
            # session is over: the broker reads its leave after the answer to its join.
            harness.until(
                process.is_ready, within=_LONGEST_SECONDS, what=f"{part} is ready", every=0.2
            )
            time.sleep(_REBALANCES_SECONDS)
    return {"seconds": at[0] - began, "cpu": cpu}
