"""Measure how long a test that uses the embedded servers takes to its first event."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import harness

_TEST = """
import time
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, Producer

from outbox import Event, write


def note(name):
    with Path("times.txt").open("a") as out:
        out.write(f"{name} {time.monotonic()}\\n")


def test_to_the_first_event_of_an_outbox(outbox_database, outbox_events):
    note("database")
    with psycopg.connect(outbox_database) as conn:
        write(conn, Event(topic="orders", key="o-1", type="Placed", value={"id": "o-1"}))
    assert [event.key for event in outbox_events()] == ["o-1"]
    note("outbox")


def test_to_the_first_record_of_a_topic(dovecote_stack, kafka_topic):
    topic = kafka_topic()
    producer = Producer({"bootstrap.servers": dovecote_stack.bootstrap})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": dovecote_stack.bootstrap, "group.id": topic,
                         "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while consumer.poll(1) is None:
        pass
    consumer.close()
    note("record")
"""


def measure(rounds: int) -> None:
    """Print one line: the seconds from the start of pytest to each step, and to its end."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, seconds in _once(Path(folder)).items():
                found.setdefault(name, []).append(seconds)
    harness.emit(
        "costs_testing",
        rounds=rounds,
        **{f"{name}_s": round(median(each), 2) for name, each in found.items()},
    )


def _once(folder: Path) -> dict[str, float]:
    (folder / "test_first.py").write_text(_TEST, encoding="utf-8")
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_first.py"]
    done = subprocess.run(
        command, cwd=folder, env=os.environ, stdout=subprocess.PIPE, text=True, check=False
    )
    took = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stdout)
    lines = (folder / "times.txt").read_text(encoding="utf-8").splitlines()
    times = dict(line.split() for line in lines)
    return {**{name: float(at) - began for name, at in times.items()}, "end": took}
