"""Shared by the benchmarks of `push`: a target, a `push` process, numbered records."""

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from confluent_kafka import Producer

from outbox.envelope import encode
from outbox.event import Event

VALUE_BYTES = 110
KEY = "secret" * 4  # used in this benchmark only
SECRET = "whsec_" + base64.b64encode(KEY.encode()).decode()
_FIRST = -10


class Target:
    """The endpoint, in its own process."""

    def __init__(self, port: int) -> None:
        self._at = f"http://127.0.0.1:{port}"

    def url(self, kind: str) -> str:
        return f"{self._at}/{kind}"

    def told(self, first: int = 0, count: int = 0) -> dict[str, Any]:
        """Return the counts of arrivals, and when each of `count` records came first."""
        return self._get(f"/told?{first}-{count}")  # type: ignore[no-any-return]  # JSON

    def begin_anew(self) -> None:
        self._get("/anew")

    def _get(self, path: str) -> Any:  # noqa: ANN401  # JSON
        with urllib.request.urlopen(self._at + path, timeout=30) as answer:  # noqa: S310  # ours
            return json.loads(answer.read() or b"null")


@contextmanager
def target(*how: Literal["first"]) -> Iterator[Target]:
    """Run an endpoint, with priority if `first` is set."""
    with child("push_target", *how) as process:
        yield Target(int(line(process)))


class Pusher:
    """A `push` process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self.pid = process, process.pid

    def told(self) -> dict[str, float]:
        """Return its processor time so far, and the number of deliveries by subscription."""
        if self._process.stdin is not None:
            self._process.stdin.write("cpu\n")
            self._process.stdin.flush()
        return json.loads(line(self._process))  # type: ignore[no-any-return]  # JSON


@contextmanager
def pusher(bootstrap: str, subscriptions: Sequence[dict[str, Any]]) -> Iterator[Pusher]:
    wanted = json.dumps({"bootstrap": bootstrap, "subscriptions": subscriptions})
    with child("pushing") as process:
        if process.stdin is not None:
            process.stdin.write(f"{wanted}\n")  # a command line has no room for thousands
        yield Pusher(process)


@contextmanager
def first() -> Iterator[None]:
    """Give this process priority, if that is allowed: the load generator is not being measured."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


class Reader:
    """A process that reads a topic's new records, and does nothing else."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begun(self) -> None:
        """Wait until it has read the first record."""
        line(self._process)

    def times(self) -> list[float]:
        """Return when it had each record, once it has them all."""
        return json.loads(line(self._process))  # type: ignore[no-any-return]  # JSON


@contextmanager
def reader(bootstrap: str, topic: str, records: int) -> Iterator[Reader]:
    wanted = json.dumps({"bootstrap": bootstrap, "topic": topic, "records": records})
    with child("push_floor", wanted) as process:
        yield Reader(process)


def subscription(id_: str, topic: str, url: str, in_flight: int) -> dict[str, Any]:
    """Return a typical subscription: signed CloudEvents, in order per key."""
    return {
        "id": id_,
        "topics": [topic],
        "endpoint": {"url": url},
        "format": "cloudevents_binary",
        "signing": {"secrets": [SECRET]},
        "limits": {"max_in_flight": in_flight},
    }


class Records:
    """Produces numbered records; the target finds the numbers in their values."""

    def __init__(self, bootstrap: str, *, linger: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": linger,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        event = Event(topic="bench", type="Benched", source="/bench", value=b"x")
        self._headers = [pair for pair in encode(event)[2] if pair[0] != "ce_id"]

    def produce(self, topic: str, number: int, keys: int) -> None:
        value = b"%010d" % number + b"x" * (VALUE_BYTES - 10)
        headers = [("ce_id", b"%032d" % number), *self._headers]
        self._producer.produce(topic, value, b"key-%d" % (number % keys), headers=headers)  # type: ignore[arg-type]  # invariant list, only read
        self._producer.poll(0)

    def flush(self) -> None:
        if self._producer.flush(60):
            sys.exit("the records could not be produced within a minute")


def until_came(to: Target, records: int, *, within: float) -> dict[str, Any]:
    """Wait until `records` have come; return the target's counts, even after a timeout."""
    deadline = time.monotonic() + within
    while True:
        told = to.told()
        if told["fast"] >= records or time.monotonic() > deadline:
            return told
        time.sleep(0.2)


@contextmanager
def child(module: str, *args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", f"from benchmarks.{module} import main; main()", *args]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(40)
        if process.stdout is not None:
            process.stdout.close()


def line(process: "subprocess.Popen[str]") -> str:
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        sys.exit("a process of the benchmark has ended")
    return line
