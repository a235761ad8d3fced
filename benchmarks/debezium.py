"""
The peer: Debezium's Postgres connector with its outbox router, in a Kafka Connect worker.

It is tuned as its documentation and our own trials suggest: large batches and queues, a short
poll, lz4. There is one worker for each mode, because exactly-once is a property of the worker.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks import harness
from dovecote.devstack import Stack
from dovecote.devstack.kafka.jars import JarSet, fetch
from dovecote.devstack.kafka.java import java
from dovecote.devstack.places import free_port

Mode: TypeAlias = Literal["exactly_once", "at_least_once"]

VERSION = "3.3.1.Final"

JARS = JarSet(
    f"debezium-{VERSION}",
    f"""\
    <dependency org="io.debezium" name="debezium-connector-postgres" rev="{VERSION}"
                conf="default"/>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="4.1.0" conf="default"/>
    <dependency org="org.apache.kafka" name="connect-json" rev="4.1.0" conf="default"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="4.1.0" conf="default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-core" rev="2.25.3" conf="default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.3"
                conf="default"/>
""",
    Path(__file__).with_name("checksums") / f"debezium-{VERSION}.sha256",
)

_TABLE = """
CREATE TABLE outbox (
    id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
    type text NOT NULL, payload text
)
"""

INSERT = (
    "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
    " SELECT md5(%(topic)s || n)::uuid, %(topic)s, 'key-' || n %% %(keys)s, 'Benched',"
    " format('%%-*s', %(size)s::int, n)"
    " FROM generate_series(%(first)s::int, %(last)s::int) AS n"
)

_TUNED = {
    "max.batch.size": "10240",
    "max.queue.size": "40960",
    "poll.interval.ms": "5",
    "producer.override.linger.ms": "5",
    "producer.override.batch.size": "262144",
    "producer.override.compression.type": "lz4",
    "producer.override.buffer.memory": "134217728",
}

_LOGGING = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

_UP_SECONDS = 90.0


class Worker:
    """A Kafka Connect worker with one connector, on its own database."""

    def __init__(self, stack: Stack, mode: Mode, directory: Path) -> None:
        self.mode = mode
        self.dsn = _database(stack)
        self._name = f"debezium_{uuid4().hex[:12]}"
        self._stack, self._directory = stack, directory
        self._address = f"http://127.0.0.1:{free_port()}"
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def create(self) -> None:
        """Start the connector for the first time, which makes its slot."""
        harness.until(self._is_up, within=_UP_SECONDS, what="Kafka Connect", every=0.2)
        self._ask("PUT", f"/connectors/{self._name}/config", self._connector())
        self._until_streaming()

    def stop(self) -> None:
        """Stop the connector; the worker keeps running, and stays warm."""
        self._ask("PUT", f"/connectors/{self._name}/stop")
        harness.until(
            lambda: not self._is_streaming(), within=_UP_SECONDS, what="a stop", every=0.1
        )

    def resume(self) -> None:
        self._ask("PUT", f"/connectors/{self._name}/resume")

    def run(self) -> None:
        """Resume, and wait until the connector reads."""
        self.resume()
        self._until_streaming()

    def _start(self) -> "subprocess.Popen[bytes]":
        properties = self._directory / "worker.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._worker().items()))
        logging = self._directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        runtime = java()
        command = [
            *(str(runtime.executable), *runtime.options, "-Xms1g", "-Xmx2g", "-server"),
            *("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent"),
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            *("-cp", f"{fetch(JARS)}/*", "org.apache.kafka.connect.cli.ConnectDistributed"),
            str(properties),
        ]
        with (self._directory / "connect.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _worker(self) -> Mapping[str, str]:
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        topics = {
            f"{kind}.storage.{what}": value
            for kind in ("config", "offset", "status")
            for what, value in (("topic", f"{self._name}-{kind}"), ("replication.factor", "1"))
        }
        return {
            "bootstrap.servers": self._stack.kafka.bootstrap,
            "listeners": self._address,
            "group.id": self._name,
            "key.converter": json_converter,
            "value.converter": json_converter,
            "offset.flush.interval.ms": "5000",
            "scheduled.rebalance.max.delay.ms": "0",
            "exactly.once.source.support": (
                "enabled" if self.mode == "exactly_once" else "disabled"
            ),
            **topics,
        }

    def _connector(self) -> Mapping[str, str]:
        server = conninfo_to_dict(self.dsn)
        text = "org.apache.kafka.connect.storage.StringConverter"
        mode = (
            {"exactly.once.support": "required", "transaction.boundary": "poll"}
            if self.mode == "exactly_once"
            else {}
        )
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": str(server["host"]),
            "database.port": str(server["port"]),
            "database.user": str(server["user"]),
            "database.password": str(server["password"]),
            "database.dbname": str(server["dbname"]),
            "topic.prefix": self._name,
            "plugin.name": "pgoutput",
            "slot.name": self._name,
            "publication.name": self._name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": "public.outbox",
            "snapshot.mode": "no_data",
            "tombstones.on.delete": "false",
            "key.converter": text,
            "value.converter": text,
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.route.topic.replacement": "${routedByValue}",
            **_TUNED,
            **mode,
        }

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> None:
        request = urllib.request.Request(  # noqa: S310  # the worker's own address
            f"{self._address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310  # the worker's own address
            return

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            log = self._directory / "connect.log"
            raise SystemExit(f"Kafka Connect ended:\n{log.read_text(errors='replace')[-4000:]}")
        try:
            self._ask("GET", "/connectors")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def _is_streaming(self) -> bool:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            row = conn.execute(
                "SELECT active FROM pg_replication_slots WHERE slot_name = %s", [self._name]
            ).fetchone()
        return bool(row and row[0])

    def _until_streaming(self) -> None:
        harness.until(self._is_streaming, within=_UP_SECONDS, what="Debezium", every=0.1)


@contextmanager
def worker(stack: Stack, mode: Mode) -> Iterator[Worker]:
    """Run a worker whose connector is stopped."""
    with TemporaryDirectory() as folder:
        connect = Worker(stack, mode, Path(folder))
        try:
            connect.create()
            connect.stop()
            yield connect
        finally:
            connect.end()


def _database(stack: Stack) -> str:
    dsn = harness.empty_database(stack)
    with psycopg.connect(dsn) as conn:
        conn.execute(_TABLE)
    return dsn
