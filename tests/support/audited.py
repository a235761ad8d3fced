"""An outbox with rows, a topic that a relay of the test's own fills, and audits of both."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from confluent_kafka import Producer

from dovecote.audit.rules.ids import partition_of
from outbox import Event, write
from outbox.envelope import encode
from tests.support.waiting import patient, until

DSN = "DOVECOTE_TEST_AUDIT_DSN"
_DOVECOTE = str(Path(sys.executable).with_name("dovecote"))


@dataclass
class Shop:
    """An outbox whose events the test itself publishes, well or badly."""

    dsn: str
    bootstrap: str
    topic: str
    folder: Path
    written: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def write(self, count: int, *, keys: int = 7, **more: Any) -> list[Event]:
        """Commit events, one transaction each for a few of them."""
        events = [
            Event(
                topic=self.topic,
                type="Audited",
                source="/shop",
                key=f"key-{n % keys}",
                value={"n": n},
                **more,
            )
            for n in range(self.written, self.written + count)
        ]
        self.written += count
        with psycopg.connect(self.dsn) as conn:
            for at in range(0, count, 10):
                write(conn, *events[at : at + 10])
                conn.commit()
        return events

    def publish(
        self,
        events: Iterable[Event],
        *,
        partition: int | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        topic: str | None = None,
    ) -> None:
        """Send records in this order, as a relay does."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
        )
        for event in events:
            key, its_value, its_headers = encode(event)
            where: Any = {} if partition is None else {"partition": partition}
            producer.produce(
                topic or self.topic,
                its_value if value is None else value,
                key,
                headers=[*its_headers, *headers],
                **where,
            )
            producer.poll(0)
        producer.flush(patient(30))

    def settings(self, name: str = "watch.toml", **audit: Any) -> Path:
        """Write a watch file, and return its path."""
        file = self.folder / name
        own = {"grace": "1s", "topics": [self.topic], **self.extra, **audit}
        lines = [f"{key} = {json.dumps(each)}" for key, each in own.items()]
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = {json.dumps(self.bootstrap)}\n'
            f'[sources.outbox.shop]\ndsn = {{ env = "{DSN}" }}\nretention = "1h"\nname = "shop"\n'
            "[audit]\n" + "\n".join(lines) + "\n"
        )
        return file

    def audit(self, file: Path | None = None, *, status: int | None = None) -> dict[str, Any]:
        """Audit once, and return the statement."""
        done = subprocess.run(
            [_DOVECOTE, "audit", "--once", "--json", "-c", str(file or self.settings())],
            env={**os.environ, DSN: self.dsn},
            capture_output=True,
            text=True,
            timeout=patient(90),
            check=False,
        )
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        if status is not None:
            assert done.returncode == status, (told, done.stderr)
        return told

    @contextmanager
    def auditing(self, file: Path) -> Iterator["Running"]:
        """Run an auditor that goes on, and end it."""
        running = Running(file, {**os.environ, DSN: self.dsn})
        try:
            yield running
        finally:
            running.end()


@dataclass
class Followed(Shop):
    """An outbox with a relay, and a consumer with an inbox in the same database."""

    relay: str = "shop"
    retry: str = ""
    dead: str = ""

    def settings(self, name: str = "watch.toml", **audit: Any) -> Path:
        """Write a watch file that names the consumer, too; `filter` is the consumer's."""
        consumer = {"group": self.topic, "topics": [self.topic]}
        if "filter" in audit:
            consumer["filter"] = audit.pop("filter")
        file = super().settings(name, **audit)
        text = file.read_text().replace('name = "shop"', f"name = {json.dumps(self.relay)}")
        lines = [f"{key} = {json.dumps(each)}" for key, each in consumer.items()]
        file.write_text(
            f"{text}[sources.consumer.shipping]\n" + "\n".join(lines) + "\n"
            f'inbox = {{ dsn = {{ env = "{DSN}" }} }}\n'
            f"retries = {{ dead_letter_topic = {json.dumps(self.dead)}, "
            f"tiers = [{{ topic = {json.dumps(self.retry)} }}] }}\n"
        )
        return file


class Running:
    """An auditor as a process."""

    def __init__(self, file: Path, environ: Mapping[str, str]) -> None:
        self._file, self._environ = file, environ
        self._log = file.with_suffix(".log")
        self._out = file.with_suffix(".out")
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log, self._out.open("a") as out:
            self._process = subprocess.Popen(
                [_DOVECOTE, "audit", "--json", "-c", str(self._file)],
                env=self._environ,
                stdout=out,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def told(self) -> list[dict[str, Any]]:
        """Return what it has reported."""
        lines = self._out.read_text().splitlines()
        return [json.loads(each) for each in lines if each.endswith("}")]

    def url(self) -> str:
        found = until(
            lambda: re.findall(r"serving .* on (\S+:\d+)", self.log), within=30, what="its port"
        )
        return f"http://{found[-1]}"

    def kill(self) -> None:
        """End it like a crash."""
        self._process.kill()
        self._process.wait(patient(10))

    def stop(self) -> int:
        """Ask it to end, and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(patient(30))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(patient(10))


def kinds(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return kind and id of the findings of a statement."""
    return sorted((each["kind"], each["id"]) for each in told["findings"])


def confirm(shop: Shop, name: str = "shop") -> None:
    """Say that a relay has published all that is committed."""
    with psycopg.connect(shop.dsn) as conn:
        conn.execute("SELECT outbox.confirm(%s, pg_current_snapshot(), NULL, 0)", [name])


class Planted(NamedTuple):
    """The events whose records are wrong, by what is wrong with them."""

    lost: Event
    twice: Event
    first: Event
    """The one that comes after `second`, which was written later."""
    second: Event
    altered: Event
    misplaced: Event


def publish_with_faults(shop: Shop, events: Sequence[Event], phantom: Event) -> Planted:
    """Publish 300 events of seven keys with a fault of each kind, and one that was not written."""
    planted = Planted(*(events[at] for at in (40, 60, 80, 87, 100, 120)))
    order = [each for each in events if each.id != planted.lost.id]
    ids = [each.id for each in order]
    at, other = ids.index(planted.first.id), ids.index(planted.second.id)
    order[at], order[other] = planted.second, planted.first
    bad, aside = ids.index(planted.altered.id), ids.index(planted.misplaced.id)
    shop.publish(order[:bad])
    shop.publish([planted.altered], value=b'{"n":0}')
    shop.publish(order[bad + 1 : aside])
    shop.publish([planted.misplaced], partition=(partition_of(b"key-1", 3) + 1) % 3)
    shop.publish(order[aside + 1 :])
    shop.publish([planted.twice])
    shop.publish([phantom])
    return planted
