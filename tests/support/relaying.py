"""Run `dovecote relay run` as its own process, and compare its results with the expected ones."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, Message, TopicPartition

from outbox import Event, schema, write
from outbox.envelope import Pair, Record, identity
from outbox.schema.capture import use_wal
from tests.support.waiting import consume, patient, until

COMMAND = str(Path(sys.executable).with_name("dovecote"))
DSN = "DOVECOTE_RELAY_DSN"


class Answer(NamedTuple):
    """An answer of the relay's HTTP server."""

    status: int
    body: str


class RelayProcess:
    """One `dovecote relay run`, whose log is kept."""

    def __init__(self, folder: Path, settings: str, environ: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "relay.toml"
        config.write_text(settings, encoding="utf-8")
        self.log_file = folder / "relay.log"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [COMMAND, "relay", "run", "--config", str(config)],
                env={**os.environ, **environ},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        """Its output so far."""
        # The last character may be half written.
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def until_logged(self, text: str, *, within: float = 30.0, times: int = 1) -> None:
        """Wait for `text` in the log; fail at once if the process ends without it."""

        def found() -> bool:
            ended = self._process.poll() is not None
            if self.log.count(text) >= times:
                return True
            assert not ended, f"the relay ended with {self._process.returncode}:\n{self.log}"
            return False

        try:
            until(found, within=within, what=f"{text!r} in the log")
        except AssertionError as error:
            msg = f"{error}\n{self.log}"
            raise AssertionError(msg) from None

    def get(self, path: str) -> Answer:
        """Return the answer of its HTTP server (`http.port = 0`)."""
        port = re.search(r"serving .* on \S+:(\d+)", self.log)
        assert port is not None, self.log
        try:
            with urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=patient(5)) as answer:
                return Answer(answer.status, answer.read().decode())
        except HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP it, and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        until(lambda: _state(self.pid) == "T", within=5, what="the relay stopped")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it like a crash, and wait until it is gone."""
        self._process.kill()
        self._process.wait(patient(10))

    def terminate(self, *, within: float = 20.0) -> int:
        """Ask it to end, and return its exit status."""
        self._process.terminate()
        return self.wait(within=within)

    def wait(self, *, within: float = 20.0) -> int:
        """Wait for its end, and return its exit status."""
        try:
            return self._process.wait(patient(within))
        except subprocess.TimeoutExpired:
            msg = f"the relay did not end within {within} s:\n{self.log}"
            raise AssertionError(msg) from None

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(patient(10))


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]


def settings(
    bootstrap: str, *, kafka: Mapping[str, str] | None = None, **fields: int | str
) -> str:
    """Return the TOML of a relay that notices trouble, and makes room, sooner than by default."""
    sooner: dict[str, int | str] = {"standby_poll": "50ms", "lease": "2s", "rotate_every": "1s"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in (sooner | fields).items()]
    properties = {"bootstrap.servers": bootstrap, **(kafka or {})}
    lines += ["[http]", "port = 0", "[kafka]"]
    lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in properties.items()]
    return "\n".join(lines) + "\n"


class Relays:
    """Starts relays, and leaves none behind."""

    def __init__(self, folder: Path, dsn: str, bootstrap: str) -> None:
        self.folder, self.dsn, self.bootstrap = folder, dsn, bootstrap
        self.name = f"shop-{uuid4().hex[:12]}"
        self.started: list[RelayProcess] = []

    def start(
        self,
        *,
        dsn: str | None = None,
        kafka: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        **fields: int | str,
    ) -> RelayProcess:
        """Start one; it need not be active yet."""
        process = RelayProcess(
            self.folder / f"relay-{len(self.started)}",
            settings(self.bootstrap, kafka=kafka, **{"name": self.name, **fields}),
            {DSN: dsn or self.dsn, **(environ or {})},
        )
        self.started.append(process)
        return process

    def active(self, **fields: Any) -> RelayProcess:
        """Start one, and wait until it publishes."""
        process = self.start(**fields)
        process.until_logged("publishing from")
        return process

    def end(self) -> None:
        for process in self.started:
            process.end()


@contextmanager
def relays(folder: Path, dsn: str, bootstrap: str) -> Iterator[Relays]:
    """Yield a factory for relays of the outbox in `dsn`, and end them all afterwards."""
    started = Relays(folder, dsn, bootstrap)
    try:
        yield started
    finally:
        started.end()


def installed(dsn: str, capture: str = "table") -> str:
    """Install the outbox in a database, and return its `dsn`."""
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
        # Remembers the events, because published ones, and those in the log, are kept nowhere
        # else.
        conn.execute(
            "CREATE TABLE IF NOT EXISTS written"
            " (nr bigint GENERATED ALWAYS AS IDENTITY, id text, topic text)"
        )
    if capture == "wal":
        use_wal(dsn, schema.DEFAULT_SCHEMA)
    return dsn


def write_known(conn: psycopg.Connection, *events: Event) -> None:
    """Write events, and remember them in the same transaction."""
    write(conn, *events)
    conn.execute(
        "INSERT INTO written (id, topic) SELECT unnest(%s::text[]), unnest(%s::text[])",
        [[each.id for each in events], [each.topic for each in events]],
    )


def event(topic: str, number: int, *, key: str = "key", **fields: Any) -> Event:
    """Return an event whose value is its number within its key."""
    return Event(topic=topic, type="Counted", source="/tests", key=key, value=number, **fields)


def commit(dsn: str, *events: Event) -> None:
    """Write events in one transaction of their own."""
    with psycopg.connect(dsn) as conn:
        write_known(conn, *events)


def fill(dsn: str, topic: str, count: int, *, first: int = 0, keys: int = 7) -> None:
    """Commit many events quickly, numbered in order within their keys."""
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "WITH known AS (INSERT INTO written (id, topic) SELECT gen_random_uuid(), %(topic)s"
            " FROM generate_series(1, %(count)s) RETURNING id, nr),"
            " numbered AS (SELECT id, %(first)s - 1 + row_number() OVER (ORDER BY nr) AS n"
            " FROM known ORDER BY nr)"
            " SELECT outbox.append(%(topic)s, ('k' || n %% %(keys)s)::bytea, n::text::bytea,"
            " 'Counted', id::uuid) FROM numbered",
            {"topic": topic, "count": count, "first": first, "keys": keys},
        )


def ids(messages: Iterable[Message]) -> list[str]:
    """Return the events' ids, in the order of the records."""
    return [identity(record_of(message))[1] for message in messages]


def on_kafka(fleet: Relays, topic: str) -> list[str]:
    """Return the ids of the events that `topic` has."""
    return ids(consume(fleet.bootstrap, topic))


def record_of(message: Message) -> Record:
    """Return a consumed message in the form that the envelope takes."""
    return Record(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=cast(list[Pair], message.headers() or []),
    )


class Difference(NamedTuple):
    """The differences between the outbox and a topic; all empty if the relay kept its word."""

    lost: set[str]
    invented: set[str]
    doubled: set[str]
    out_of_order: list[tuple[str, int, int]]


AGREE = Difference(set(), set(), set(), [])


def committed(dsn: str, topic: str) -> list[str]:
    """
    Return the ids of all committed events for `topic`; the outbox need not have them any more.
    """
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT id FROM written WHERE topic = %s ORDER BY nr", [topic])
        return [row[0] for row in rows]


def difference(wanted: Iterable[str], messages: Iterable[Message]) -> Difference:
    """
    Compare events with records: ids as multisets, and per key the numbers in their values.

    A repeated id counts as doubled; the order is that of first occurrences.
    """
    wanted, messages = list(wanted), list(messages)
    found = ids(messages)
    surplus = Counter(found) - Counter(wanted)
    lost = Counter(wanted) - Counter(found)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    seen: set[str] = set()
    for id_, message in zip(found, messages, strict=True):
        if id_ not in seen:
            numbers[(message.key() or b"").decode()].append(int(message.value() or b"-1"))
        seen.add(id_)
    disorder = [
        (key, before, after)
        for key, run in numbers.items()
        for before, after in pairwise(run)
        if after <= before
    ]
    known = set(wanted)
    return Difference(set(lost), set(surplus) - known, set(surplus) & known, disorder)


def published(fleet: Relays, topic: str, count: int, *, within: float = 30.0) -> list[Message]:
    """Wait until a reader of committed records sees `count` of them; return all that it sees."""
    return seen(fleet, topic, lambda found: len(found) >= count, within, f"{count} records")


def drained(fleet: Relays, topic: str, *, within: float = 60.0) -> list[Message]:
    """Wait until every committed event has arrived, and return all records."""
    wanted = set(committed(fleet.dsn, topic))
    return seen(
        fleet, topic, lambda found: wanted <= set(ids(found)), within, f"{len(wanted)} events"
    )


def seen(
    fleet: Relays,
    topic: str,
    enough: Callable[[list[Message]], bool],
    within: float,
    what: str,
) -> list[Message]:
    """Return the committed records of `topic` once they are `enough`."""
    end = -1
    with closing(Watch(fleet.bootstrap, topic)) as watch:

        def looked() -> tuple[list[Message]] | None:
            nonlocal end
            before, end = end, watch.records("read_committed")
            # Reading them all takes long, so do it only if there are new ones.
            if before == end:
                return None
            found = consume(fleet.bootstrap, topic)
            return (found,) if enough(found) else None

        (found,) = until(looked, within=within, what=what) or ([],)
        return found


class Watch:
    """Counts the records of a topic, committed or not."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumers = {
            isolation: Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": "tests",
                    "isolation.level": isolation,
                }
            )
            for isolation in ("read_uncommitted", "read_committed")
        }
        self._topic = topic

    def records(self, isolation: str = "read_uncommitted") -> int:
        """Return the sum of the ends of all partitions."""
        consumer = self._consumers[isolation]
        partitions = (
            consumer.list_topics(self._topic, timeout=patient(10)).topics[self._topic].partitions
        )
        ends = (
            consumer.get_watermark_offsets(
                TopicPartition(self._topic, number), timeout=patient(10)
            )
            for number in partitions
        )
        return sum(high for _, high in ends)

    def in_flight(self) -> int:
        """Return how many records belong to an open transaction."""
        visible = self.records("read_committed")
        return max(0, self.records() - visible)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()


def agrees(fleet: Relays, topic: str) -> None:
    """Check that every committed event arrives, once and in the order of its key."""
    found = difference(committed(fleet.dsn, topic), drained(fleet, topic))
    assert found == AGREE, found
