"""Shared by benchmarks: servers, the relay as a process, one JSON line per measurement."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack import Stack
from dovecote.devstack.kafka.kafka import JAVA_OPTIONS
from outbox import schema
from outbox.schema.capture import use_wal

PARTITIONS = 4

_TICK = os.sysconf("SC_CLK_TCK")
# librdkafka would report on standard error that the coordinator is not there yet.
_silent = logging.getLogger("benchmarks.kafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def emit(bench: str, **fields: object) -> None:
    """Print one measurement with the settings it was made under."""
    machine = {"cores": os.cpu_count(), "load1": round(os.getloadavg()[0], 2)}
    print(json.dumps({"bench": bench, **fields, **machine}), flush=True)


@contextmanager
def servers(
    kafka_java: Sequence[str] = JAVA_OPTIONS, kafka: Mapping[str, str] | None = None
) -> Iterator[Stack]:
    """
    Run Postgres (fsync and synchronous_commit on) and Kafka for one benchmark.

    `kafka` are settings of the broker.

    Kafka has run a transaction already: before the first, it makes a topic for transactions, which
    takes a second.
    """
    postgres = {"shared_buffers": "512MB", "min_wal_size": "1GB", "max_wal_size": "4GB"}
    with Stack(fsync=True, postgres=postgres, kafka=kafka, kafka_java=kafka_java) as stack:
        first = {"bootstrap.servers": stack.kafka.bootstrap, "transactional.id": "bench-first"}
        Producer(first, logger=_silent).init_transactions(60)
        yield stack


def empty_database(stack: Stack) -> str:
    """Make a separate database for the benchmark; return its dsn."""
    name = f"bench_{uuid4().hex[:12]}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"'.encode())
    return psycopg.conninfo.make_conninfo(stack.postgres.dsn, dbname=name)


def database(stack: Stack, capture: str = "table") -> str:
    """Make a separate database for the benchmark, with the outbox installed; return its dsn."""
    dsn = empty_database(stack)
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    if capture == "wal":
        use_wal(dsn, schema.DEFAULT_SCHEMA)
    return dsn


def settle(dsn: str, tables: str) -> None:
    """Do now what autovacuum and the checkpointer would otherwise do during the measurement."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"VACUUM (ANALYZE) {tables}".encode())
        conn.execute("CHECKPOINT")


def drop_slots(dsn: str) -> None:
    """Drop a database's replication slots: each keeps the log since it was last read."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )


def topic(stack: Stack, name: str | None = None) -> str:
    """Make a separate topic for the benchmark."""
    return topic_at(stack.kafka.bootstrap, name)


def topic_at(
    bootstrap: str,
    name: str | None = None,
    partitions: int = PARTITIONS,
    config: Mapping[str, str] | None = None,
) -> str:
    """As `topic`, in the Kafka at `bootstrap`."""
    name = name or f"bench-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, partitions, config=dict(config or {}))
    admin.create_topics([new])[name].result(30)
    return name


@contextmanager
def relay(stack: Stack, dsn: str, **settings: object) -> Iterator[int]:
    """Run `dovecote relay run` in its own process and yield its pid."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "relay.toml"
        lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
        servers = json.dumps(stack.kafka.bootstrap)
        config.write_text(
            "\n".join([*lines, "[kafka]", f'"bootstrap.servers" = {servers}']),
            encoding="utf-8",
        )
        command = [
            str(Path(sys.executable).with_name("dovecote")),
            "relay",
            "run",
            "-c",
            str(config),
        ]
        with (Path(folder) / "relay.log").open("w+b") as log:
            # The dsn has a password, and secrets do not go into the file.
            environ = {**os.environ, "DOVECOTE_RELAY_DSN": dsn}
            process = subprocess.Popen(command, stderr=log, env=environ)
            try:
                yield process.pid
            finally:
                process.terminate()
                if process.wait(30) != 0:
                    log.seek(0)
                    print(log.read().decode(), file=sys.stderr)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a running process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a running process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def until(done: Callable[[], bool], *, within: float, what: str, every: float = 0.01) -> None:
    """Call `done` every few milliseconds until it returns true; give up with a clear message."""
    deadline = time.monotonic() + within
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not within {within:g} s")
        time.sleep(every)


def percentiles(seconds: list[float]) -> Mapping[str, float]:
    """Return p50, p99 and p99.9 in milliseconds."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999)}
