"""Change the password of every role again and again under load, then count."""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.inbox import schema as inbox_schema
from dovecote.devstack import Stack
from dovecote.push.store import schema as push_schema
from outbox import Event, schema, write
from outbox.envelope import ID
from outbox.errors import DovecoteError
from outbox.producer.producer import Options as ProducerOptions
from outbox.producer.producer import Producer
from outbox.schema.capture import let_relays_read, use_wal
from proof.passwords.parts import Part, Place, consumer, push, relay
from proof.passwords.receiver import Receiver

ROLES = ("proof_relay", "proof_writer", "proof_consumer", "proof_push")
_OUTBOXES = {"outbox": "table", "logged": "wal"}
_START_SECONDS, _SETTLE_SECONDS, _REFUSED_SECONDS = 90.0, 90.0, 10.0
_REFUSED = "password authentication failed"
_PAUSE_SECONDS = 0.01
_PARTITIONS = 2
_QUICK = ProducerOptions(delivery_timeout=timedelta(seconds=0.5))

Show = Callable[[str], None]


class GaveUp(DovecoteError):
    """A part ended, never was ready, or did not finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parameters of a run."""

    directory: Path
    """The folder for settings and logs."""
    seconds: float = 120.0
    every: float = 20.0
    """Seconds between two changes of the passwords."""
    longest: float = 3.0
    """The longest time for which a part may not be ready, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The events that were written, and the ones that arrived."""

    changes: int
    refused: int
    """How many of the changes a part met with the password from before."""
    seconds: float
    written: dict[str, int]
    lost: dict[str, int]
    duplicated: dict[str, int]
    unready: dict[str, float]
    longest: float

    @property
    def is_well(self) -> bool:
        """Return whether nothing was lost or doubled, and every part was soon ready again."""
        counted = [*self.lost.values(), *self.duplicated.values()]
        return not any(counted) and max(self.unready.values()) <= self.longest

    def fields(self) -> dict[str, object]:
        """Return it as one mapping."""
        return {
            "seconds": round(self.seconds, 1),
            "password_changes": self.changes,
            "old_password_refused": self.refused,
            "events": sum(self.written.values()),
            "lost": sum(self.lost.values()),
            "duplicated": sum(self.duplicated.values()),
            "written_by": self.written,
            "lost_by": self.lost,
            "duplicated_by": self.duplicated,
            "readyz_longest_outage_s": {k: round(v, 2) for k, v in self.unready.items()},
        }


def run(options: Options, show: Show, stack: Stack | None = None) -> Outcome:
    """
    Run every part with passwords that change, and count.

    Raises:
        GaveUp: a part ended by itself, or did not go on.
    """
    with ExitStack() as held:
        servers = stack or held.enter_context(Stack(fsync=False))
        return _Run(options, show, servers).run(held)


@dataclass(slots=True)
class _Written:
    """The ids of committed events, by who wrote them."""

    ids: dict[str, list[str]] = field(default_factory=lambda: {"outbox": [], "logged": []})


class _Run:
    def __init__(self, options: Options, show: Show, stack: Stack) -> None:
        self._options, self._show, self._stack = options, show, stack
        self._name = f"passwords-{secrets.token_hex(4)}"
        self._done = threading.Event()
        self._failed: list[BaseException] = []
        self._written = _Written()
        self._direct: list[str] = []
        self._changes = self._refused = 0

    def run(self, held: ExitStack) -> Outcome:
        place = held.enter_context(self._scene())
        receiver = held.enter_context(Receiver())
        parts = self._parts(place, held)
        for part in parts:
            self._until(part.is_ready, _START_SECONDS, f"{part.name} is ready", parts)
        subscription = {
            "id": self._name,
            "topics": [self._topic],
            "endpoint": {"url": receiver.url},
        }
        next(part for part in parts if part.name == "push").post("/subscriptions", subscription)
        began = time.monotonic()
        threads = [
            *(threading.Thread(target=part.watch, args=(self._done,)) for part in parts),
            *(self._thread(self._write, each) for each in _OUTBOXES),
            self._thread(self._send, place),
        ]
        for thread in threads:
            thread.start()
        try:
            self._change_until(began + self._options.seconds, place, parts)
        finally:
            self._done.set()
            for thread in threads:
                thread.join()
        if self._failed:
            raise self._failed[0]
        return self._outcome(parts, receiver, time.monotonic() - began)

    @property
    def _topic(self) -> str:
        return self._name

    @contextmanager
    def _scene(self) -> Iterator[Place]:
        """Yield a database with everything installed, for roles that are no superusers."""
        server = self._stack.postgres.dsn
        admin = AdminClient({"bootstrap.servers": self._stack.kafka.bootstrap})
        admin.create_topics([NewTopic(self._topic, _PARTITIONS, 1)])[self._topic].result(30)
        dbname = self._name.replace("-", "_")
        self._dsn = make_conninfo(server, dbname=dbname)
        secret = self._options.directory / "password"
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {dbname}".encode())
            for role in ROLES:
                conn.execute(f"DROP ROLE IF EXISTS {role}".encode())
                conn.execute(f"CREATE ROLE {role} LOGIN".encode())
            conn.execute(b"ALTER ROLE proof_relay REPLICATION")
        self._set_password(secret, [])
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            duties = schema.Roles(relays=["proof_relay"], writers=["proof_writer"])
            for name in _OUTBOXES:
                schema.install(conn, name, roles=duties)
            inbox_schema.install(conn, consumers=["proof_consumer"])
            push_schema.install(conn, roles=["proof_push"])
            conn.execute(b"CREATE TABLE effects (id text)")
            conn.execute(b"GRANT INSERT ON effects TO proof_consumer")
        use_wal(self._dsn, "logged")
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            let_relays_read(conn, "logged")
        given = conninfo_to_dict(server)
        try:
            yield Place(
                self._options.directory,
                str(given["host"]),
                str(given["port"]),
                dbname,
                self._stack.kafka.bootstrap,
                secret,
            )
        finally:
            with psycopg.connect(server, autocommit=True) as conn:
                drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                conn.execute(f"{drop} WHERE database = '{dbname}' AND NOT active".encode())
                conn.execute(f"DROP DATABASE {dbname} WITH (FORCE)".encode())
                for role in ROLES:
                    conn.execute(f"DROP ROLE {role}".encode())

    def _parts(self, place: Place, held: ExitStack) -> list[Part]:
        started: list[Part] = []

        def end() -> None:
            for part in started:
                part.child.end()

        held.callback(end)
        for turn, pointer in enumerate((place.from_command, place.from_file)):
            for name, capture in _OUTBOXES.items():
                started.append(
                    relay(
                        place,
                        f"{self._name}-{name}",
                        capture=capture,
                        schema=name,
                        pointer=pointer,
                        turn=turn,
                    )
                )
        started.append(consumer(place, self._topic, place.from_command))
        started.append(push(place, place.from_command))
        return started

    def _thread(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        def kept() -> None:
            try:
                run(*arguments)
            except BaseException as error:  # noqa: BLE001  # raised by `run`
                self._failed.append(error)
                self._done.set()

        return threading.Thread(target=kept)

    def _event(self, number: int) -> Event:
        return Event(topic=self._topic, type="Counted", key=f"k{number % 50}", value=number)

    def _write(self, outbox: str) -> None:
        """Write as a service that keeps its own connection."""
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            number = 0
            while not self._done.wait(_PAUSE_SECONDS):
                events = [self._event(number + n) for n in range(3)]
                with conn.transaction():
                    write(conn, *events, schema=outbox)
                self._written.ids[outbox] += [each.id for each in events]
                number += len(events)

    def _send(self, place: Place) -> None:
        """Send with a producer that never reaches Kafka, so that each event needs Postgres."""

        def dsn() -> str:
            return make_conninfo(
                host=place.host,
                port=place.port,
                dbname=place.dbname,
                user="proof_writer",
                password=place.secret.read_text(encoding="utf-8"),
            )

        kafka = {"bootstrap.servers": "127.0.0.1:1"}
        with Producer(dsn, kafka, options=_QUICK) as producer:
            number = 0
            while not self._done.wait(_PAUSE_SECONDS):
                event = self._event(number)
                producer.send(event)
                self._direct.append(event.id)
                number += 1

    def _change_until(self, end: float, place: Place, parts: list[Part]) -> None:
        while not self._done.wait(max(0.0, min(self._options.every, end - time.monotonic()))):
            if time.monotonic() >= end:
                return
            self._refused += self._set_password(place.secret, parts)
            self._changes += 1
            self._show(f"passwords changed: {self._changes}")
            for part in parts:
                if part.child.status is not None:
                    raise GaveUp(part.child.said())

    def _set_password(self, secret: Path, parts: Sequence[Part]) -> bool:
        """
        Change all passwords and end all sessions, and the file only after that.

        A program that changes a password takes a moment to tell everybody. The moment ends once
        a part was refused with the old one, which is returned.
        """
        new = secrets.token_urlsafe(24)
        before = _refusals(parts)
        with psycopg.connect(self._stack.postgres.dsn, autocommit=True) as conn:
            for role in ROLES:
                conn.execute(f"ALTER ROLE {role} PASSWORD '{new}'".encode())
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY (%s)",
                [list(ROLES)],
            )
        end = time.monotonic() + _REFUSED_SECONDS
        while parts and _refusals(parts) == before and time.monotonic() < end:
            threading.Event().wait(_PAUSE_SECONDS)
        refused = _refusals(parts) > before
        replacement = secret.with_suffix(".new")
        replacement.write_text(new, encoding="utf-8")
        replacement.rename(secret)
        return refused

    def _until(self, met: Callable[[], bool], within: float, what: str, parts: list[Part]) -> None:
        end = time.monotonic() + within
        while not met():
            for part in parts:
                if part.child.status is not None:
                    raise GaveUp(part.child.said())
            if time.monotonic() > end:
                msg = f"not after {within:g} s: {what}"
                raise GaveUp(msg)
            threading.Event().wait(_PAUSE_SECONDS * 10)

    def _outcome(self, parts: list[Part], receiver: Receiver, seconds: float) -> Outcome:
        """Wait until everything has arrived, or nothing more does; count."""
        written = {**self._written.ids, "producer": self._direct}
        wanted = {each for ids in written.values() for each in ids}
        records = _Records(self._stack.kafka.bootstrap, self._topic)
        try:
            for what, count in (
                ("all records are in Kafka", lambda: len(records.read() & wanted)),
                ("all effects are there", lambda: len(self._effects().keys() & wanted)),
                ("all deliveries are there", lambda: len(set(receiver.ids) & wanted)),
            ):
                self._show(f"waiting: {what}")
                self._settle(count, len(wanted))
        finally:
            records.close()
        seen = {
            "kafka": records.seen,
            "effects": self._effects(),
            "deliveries": Counter(receiver.ids),
        }
        return Outcome(
            changes=self._changes,
            refused=self._refused,
            seconds=seconds,
            written={name: len(ids) for name, ids in written.items()},
            lost={name: len(wanted - found.keys()) for name, found in seen.items()},
            duplicated={name: sum(found.values()) - len(found) for name, found in seen.items()},
            unready={part.name: part.longest for part in parts},
            longest=self._options.longest,
        )

    def _effects(self) -> Counter[str]:
        with psycopg.connect(self._dsn) as conn:
            return Counter(row[0] for row in conn.execute("SELECT id FROM effects"))

    def _settle(self, count: Callable[[], int], wanted: int) -> None:
        """Wait until all are there; give up once no more come for a while."""
        best, moved = -1, time.monotonic()
        while (found := count()) < wanted:
            if found > best:
                best, moved = found, time.monotonic()
            if time.monotonic() - moved > _SETTLE_SECONDS:
                return
            threading.Event().wait(_PAUSE_SECONDS * 10)


def _refusals(parts: Sequence[Part]) -> int:
    return sum(part.child.log.read_text(encoding="utf-8").count(_REFUSED) for part in parts)


class _Records:
    """The ids of a topic's records, read on and on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "proof", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(_PARTITIONS)])
        self.seen: Counter[str] = Counter()

    def read(self) -> set[str]:
        """Read what has come; return all ids so far."""
        for message in self._consumer.consume(10_000, 0.5):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    raise GaveUp(error.str())
                continue
            found = dict(message.headers() or ())[ID]
            self.seen[found.decode() if isinstance(found, bytes) else str(found)] += 1
        return set(self.seen)

    def close(self) -> None:
        self._consumer.close()
