"""A real Apache Kafka broker, alone in its cluster by default, in a folder of its own."""

import base64
import json
import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dovecote.devstack.kafka.class_archive import ClassArchive
from dovecote.devstack.kafka.jars import kafka_broker_jars
from dovecote.devstack.kafka.java import java
from dovecote.devstack.keeper import GRACE_SECONDS, Launch
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.progress import Progress
from dovecote.devstack.server import Server, run_to_end
from dovecote.devstack.versions import KAFKA

_FORMAT_SECONDS = 300
_LIST_TOPICS_SECONDS = 2.0

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # With one broker, nothing can be replicated.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # With few internal partitions, a killed broker is back sooner.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "1",
    # A misspelt topic is an error, not a new topic.
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker may rejoin only when its last session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    # Allocated at the start; the default is a quarter of this heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
}
"""Settings in which the stack's Kafka differs from the defaults."""

JAVA_OPTIONS: Sequence[str] = (
    "-Xmx512m",
    # A stack lives for minutes: compiling twice would cost more than it saves.
    "-XX:TieredStopAtLevel=1",
)
"""Options of its Java: a small broker that is ready soon."""

SERVING_JAVA_OPTIONS: Sequence[str] = (
    "-server",
    *("-Xms1g", "-Xmx1g"),
    *("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
)
"""Options that Kafka's own `kafka-server-start.sh` uses: for a stack that is measured."""

_LOG4J2 = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %m (%c)%n
"""

_LOG4J1 = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %m (%c)%n
"""

_silent = logging.getLogger("dovecote.devstack.kafka.kafka.probe")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # do not log that a broker is still starting


class Kafka(Server):
    """Kafka on a loopback port; clients begin at `bootstrap`."""

    name = "Kafka"

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = JAVA_OPTIONS,
        version: str | None = None,
        temporary: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """
        Choose the data and the version, which is that of existing data where none is given.

        Raises:
            UnknownVersion: `version` is not one of `versions.KAFKA`.
            OtherVersion: the data in `directory` is of another version.
        """
        super().__init__(directory, temporary=temporary)
        self._version_file = directory / "version"
        self.version = KAFKA.of_data(directory, self._kept_version(), version)
        self._java_options = java_options
        self._settings = {**SETTINGS, **(settings or {})}
        self._progress = progress
        self._ports: tuple[int, int] | None = None
        self._archive: ClassArchive | None = None

    def _kept_version(self) -> str | None:
        """Return the version that made the data; None if there is no data."""
        file = self._version_file
        # A full disk leaves an empty file.
        return (file.read_text().strip() or None) if file.exists() else None

    @property
    def ports(self) -> tuple[int, int]:
        """The ports for clients and for the controller, chosen once and then kept."""
        if self._ports is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._ports = self._keep_port("port"), self._keep_port("controller-port")
        return self._ports

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.ports[0]}"

    @property
    def _asked(self) -> str:
        """The address at which the broker itself is asked whether it is ready."""
        return self.bootstrap

    @property
    def _cluster(self) -> str:
        """The cluster's id, for new data."""
        return new_cluster_id()

    @property
    def leaves_archive(self) -> bool:
        """Whether an orderly end leaves an archive with which later brokers start faster."""
        return self.running and self._archive is not None and self._archive.is_wanted

    def stop(self) -> None:
        began, leaves = time.monotonic(), self.leaves_archive
        super().stop()
        # Do not keep one that was killed while it was written.
        if leaves and self._archive is not None and time.monotonic() - began < GRACE_SECONDS:
            self._archive.keep(self.directory)

    def _prepare(self) -> Launch:
        self.directory.mkdir(parents=True, exist_ok=True)
        runtime, jars = java(), kafka_broker_jars(self._progress, self.version)
        self._archive = ClassArchive(runtime, jars)
        self._archive.discard(self.directory)
        run = [str(runtime.executable), *runtime.options, "-cp", f"{jars}/*"]
        properties = self.directory / "server.properties"
        properties.write_text(self._properties())
        # Kafka 3 logs with log4j 1.
        is_old = self.version.startswith("3.")
        logging_file = self.directory / ("log4j.properties" if is_old else "log4j2.properties")
        logging_file.write_text(_LOG4J1 if is_old else _LOG4J2)
        logging = "log4j.configuration" if is_old else "log4j2.configurationFile"
        if not (self.directory / "data/meta.properties").exists():
            self._format([*run[:1], *self._archive.options(), *run[1:]], properties)
            self._version_file.write_text(f"{self.version}\n")
        return Launch(
            argv=[
                *run[:1],
                *self._java_options,
                *self._archive.options_of_server(self.directory),
                f"-D{logging}={logging_file.as_uri()}",
                *run[1:],
                "kafka.Kafka",
                str(properties),
            ],
            env=dict(os.environ),
            directory=str(self.directory),
            log=str(self.log),
        )

    def _properties(self) -> str:
        # Extra listeners come in addition to the stack's own, which the readiness probe uses.
        listeners = {
            name: ",".join(filter(None, [listener, self._settings.get(name)]))
            for name, listener in self._listeners().items()
        }
        settings = {
            **self._settings,
            **listeners,
            "controller.quorum.voters": self._voters(),
            # Relative, because Kafka takes a comma in a path for the end of it.
            "log.dirs": "data",
        }
        return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())

    def _listeners(self) -> Mapping[str, str]:
        """Return the settings for its listeners, and for the addresses that it advertises."""
        port, controller_port = self.ports
        return {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        }

    def _voters(self) -> str:
        """Return the controllers of the cluster, and their addresses."""
        return f"1@{LOOPBACK}:{self.ports[1]}"

    def _format(self, run: list[str], properties: Path) -> None:
        """Write the cluster's id into the empty data folder, as Kafka requires."""
        run_to_end(
            [
                *run[:1],
                "-XX:TieredStopAtLevel=1",  # it runs for a second: compiling is not worth it
                *run[1:],
                "kafka.tools.StorageTool",
                *("format", "--ignore-formatted"),
                f"--cluster-id={self._cluster}",
                *("--config", str(properties)),
            ],
            failure="Kafka's data could not be made",
            folder=self.directory,
            seconds=_FORMAT_SECONDS,
        )

    def _probe(self) -> str | None:
        admin = AdminClient({"bootstrap.servers": self._asked}, logger=_silent)
        try:
            metadata = admin.list_topics(timeout=_LIST_TOPICS_SECONDS)
        except KafkaException as error:
            return str(error)
        is_known = int(self._settings["node.id"]) in metadata.brokers
        return None if is_known else "the broker is not part of its cluster yet"


def new_cluster_id() -> str:
    """Return an id for a new cluster; it may begin with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _escaped(value: str) -> str:
    """Return `value` in the syntax of a Java properties file, which Java reads as Latin-1."""
    # JSON writes other characters as Java reads them, one `\uXXXX` for each unit of UTF-16.
    return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in value.replace("\\", r"\\"))
