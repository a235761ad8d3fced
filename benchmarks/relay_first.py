"""
The first event after a time in which nothing happened: `make bench-relay_first`.

All relays are idle at once, each with an outbox and a topic of its own. Then each gets one event,
one relay after the other. The clock runs from the end of the writer's `COMMIT` to a
`read_committed` consumer. The broker closes connections that nobody used for 20 s, as it would
after ten minutes: so a minute has the effects of an hour.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks import draining, harness
from dovecote.devstack import Stack
from outbox import Event, write

_CLOSES = {"connections.max.idle.ms": "20000"}
_LONGEST_SECONDS = 60.0


@dataclass(slots=True)
class _Idle:
    """A relay that has nothing to do."""

    capture: str
    poll_max: str
    pid: int
    conn: psycopg.Connection
    topic: str
    consumer: Consumer
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    idle: float = 0.0


def main() -> None:
    """Let relays be idle, and measure the first event of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--after", type=float, default=60.0, help="seconds without events")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--polls", nargs="+", default=["100ms", "20ms", "10ms"], metavar="TIME")
    args = parser.parse_args()
    with harness.servers(kafka=_CLOSES) as stack, ExitStack() as ending:
        relays = [_begin(stack, ending, "wal", "100ms")]
        relays += [_begin(stack, ending, "table", each) for each in args.polls]
        for each in relays:
            _first(each)
            each.seconds.clear()
        for _ in range(args.rounds):
            _rest(relays, args.after)
            for each in relays:
                _first(each)
    for each in relays:
        harness.emit(
            "relay_first",
            capture=each.capture,
            poll_max=each.poll_max,
            after_s=args.after,
            rounds=args.rounds,
            p50_ms=round(median(each.seconds) * 1000, 1),
            max_ms=round(max(each.seconds) * 1000, 1),
            idle_cpu_share=round(each.cpu / each.idle, 4),
        )


def _begin(stack: Stack, ending: ExitStack, capture: str, poll_max: str) -> _Idle:
    dsn, topic = harness.database(stack, capture), harness.topic(stack)
    settings = {"name": topic, "capture": capture, "poll_max": poll_max}
    pid = ending.enter_context(harness.relay(stack, dsn, **settings))
    conn = ending.enter_context(psycopg.connect(dsn))
    _write(conn, topic)
    draining.until_published(stack, topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap,
            "group.id": f"bench-{uuid4().hex[:8]}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # The broker closes its connections, as it should here.
            "log.connection.close": False,
        }
    )
    ending.callback(consumer.close)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(harness.PARTITIONS)])
    idle = _Idle(capture, poll_max, pid, conn, topic, consumer)
    _received(idle)
    return idle


def _rest(relays: Sequence[_Idle], seconds: float) -> None:
    began, before = time.monotonic(), [harness.cpu_seconds(each.pid) for each in relays]
    time.sleep(seconds)
    took = time.monotonic() - began
    for each, cpu in zip(relays, before, strict=True):
        each.cpu += harness.cpu_seconds(each.pid) - cpu
        each.idle += took


def _first(idle: _Idle) -> None:
    _write(idle.conn, idle.topic)
    committed = time.monotonic()
    idle.seconds.append(_received(idle) - committed)


def _received(idle: _Idle) -> float:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        message = idle.consumer.poll(1)
        if message is not None and message.error() is None:
            return time.monotonic()
    raise SystemExit(f"{idle.capture}: no event within {_LONGEST_SECONDS:g} s")


def _write(conn: psycopg.Connection, topic: str) -> None:
    write(conn, Event(topic=topic, type="Benched", source="/bench", key="key", value=b"x"))
    conn.commit()


if __name__ == "__main__":
    main()
