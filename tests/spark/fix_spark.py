"""One Spark for all tests, and jobs with topics of their own on it."""

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession

from dovecote.devstack import Stack
from dovecote.devstack.kafka.java import java
from outbox.envelope import Pair, Record
from spark_jobs.errors import QueryFailed
from spark_jobs.policy import job as dedup
from spark_jobs.query.configuring import configuration
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import close_session, open_session
from spark_jobs.query.settings import DedupSettings, SparkSettings
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.markers import Marker
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import consume, patient

PARTITIONS = 2
# Few rows, so that keys go on over the ends of Arrow batches.
ARROW_ROWS = 16
_TOO_LATE = "Python worker failed to connect back"

# Kafka 4 has this default; before, a topic took every time.
AN_HOUR = "3600000"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark: it takes longer to start than most tests take to run."""
    os.environ.update(java().environment())
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    settings = SparkSettings(
        query="tests",
        checkpoint="-",
        shuffle_partitions=PARTITIONS,
        conf={"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS)},
    )
    session = open_session(configuration(settings, master="local[2]"))
    yield session
    close_session(session)


def persistently(run: Callable[[], None]) -> None:
    """
    Run a job, and start it again, as a supervisor would, if Spark found the machine too busy.

    Spark waits 10 s for a worker to start, which nobody can set. Nothing is written before.
    """
    while True:
        try:
            return run()
        except QueryFailed as error:
            if _TOO_LATE not in str(error):
                raise


@contextmanager
def in_thread(
    run: Callable[[threading.Event], None], *, within: float
) -> Iterator[list[BaseException]]:
    """Run a job persistently, yield its errors, and stop it at the end of the block."""
    stop, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            persistently(lambda: run(stop))
        except BaseException as error:  # noqa: BLE001  # raised below
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield failed
    finally:
        stop.set()
        thread.join(patient(within))
    if failed:
        raise failed[0]
    assert not thread.is_alive(), "the job did not end"


class Supervised:
    """A command of Spark that is started again for the same reason; any other end fails."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self._command, self._environ, self._log = command, environ, log
        self.process = self._started()

    def goes_on(self) -> bool:
        """Return True, for a condition that the command is to fulfil."""
        if self.process.poll() is not None:
            assert _TOO_LATE in self.said(), self.said()
            self.process = self._started()
        return True

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(patient(30))

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._command, env=self._environ, stdout=subprocess.DEVNULL, stderr=log
            )


@dataclass(frozen=True)
class Job:
    """A job with topics and a checkpoint of its own."""

    kafka: str
    folder: Path
    settings: DedupSettings
    spark: SparkSession | None = None

    def with_(self, **tables: Mapping[str, object]) -> "Job":
        """Return the same job with other settings in some tables."""
        changed = self.settings.model_dump()
        for name, fields in tables.items():
            changed[name] |= fields
        settings = DedupSettings.model_validate(changed)
        return Job(self.kafka, self.folder, settings, self.spark)

    def run(self, *, adopt: bool = False) -> list[BatchLine]:
        """Run until everything is read; return the lines of the batches."""
        assert self.spark is not None
        shown: list[BatchLine] = []
        stop = threading.Event()
        spark = self.spark
        persistently(
            lambda: dedup.run(self.settings, spark, show=shown.append, stop=stop, adopt=adopt)
        )
        return shown

    def running(self) -> AbstractContextManager[list[BaseException]]:
        """Run the job meanwhile, and yield its errors; it ends between two batches."""
        spark = self.spark
        assert spark is not None
        return in_thread(
            lambda stop: dedup.run(self.settings, spark, show=_unseen, stop=stop),
            within=patient(60),
        )

    @property
    def source(self) -> str:
        return self.settings.source.topics[0]

    @property
    def checkpoint(self) -> Path:
        return Path(self.settings.spark.checkpoint)

    def send(self, *records: tuple[str | None, bytes | None, Sequence[Pair]]) -> None:
        """Put records on the source topic: key, value and headers, in this order per key."""
        producer = Producer(
            {
                "bootstrap.servers": self.kafka,
                "partitioner": "murmur2_random",
                "message.max.bytes": 8_000_000,  # the topic's own limit holds
            }
        )
        for key, value, headers in records:
            producer.produce(self.source, value, key, headers=list(headers))
        assert producer.flush(patient(30)) == 0

    def input(self) -> list[Record]:
        return [as_record(message) for message in consume(self.kafka, self.source)]

    def output(self) -> list[Record]:
        return self._records(self.settings.output.topic)

    def retries(self) -> list[Record]:
        return self._records(self.settings.output.retry_topic)

    def dead_letters(self) -> list[Record]:
        return self._records(self.settings.output.dead_letter_topic)

    def markers(self) -> dict[int, Marker]:
        topic = MarkerTopic(self.settings.marker_topic(), self.settings.kafka, timeout=patient(30))
        return topic.read(range(topic.partitions()))

    def file(self) -> Path:
        """Write the settings to a file, and return it."""
        path = self.folder / "job.toml"
        tables = self.settings.model_dump(mode="json", exclude_none=True)
        tables["retry"] = {"max_attempts": self.settings.retry.max_attempts}
        for unlike in ("transaction_timeout", "stall_after", "behind_after", "recirculation"):
            del tables[unlike]
        lines: list[str] = []
        for table, fields in tables.items():
            lines += [f"[{table}]", *(f'"{k}" = {_toml(v)}' for k, v in fields.items() if v != {})]
        path.write_text("\n".join(lines))
        return path

    def _records(self, topic: str) -> list[Record]:
        return [as_record(message) for message in consume(self.kafka, topic)]


def as_record(message: Message) -> Record:
    headers: Any = message.headers() or []
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )


def _unseen(_: BatchLine) -> None:
    """Show nothing."""


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return str(value).lower() if isinstance(value, bool | int) else f"'{value}'"


MakeJob = Callable[..., Job]


@pytest.fixture
def bare_job(stack: Stack, topic: MakeTopic, tmp_path: Path) -> MakeJob:
    """Makes jobs that have no Spark; keyword arguments are fields of `[operator]`."""

    def make(**operator: object) -> Job:
        query = f"test-{uuid4().hex[:12]}"
        settings = DedupSettings.model_validate(
            {
                "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
                "source": {"topics": [topic(4)]},
                "operator": {"type": "first_match", **operator},
                "output": {
                    "topic": topic(2, message_timestamp_after_max_ms=AN_HOUR),
                    "retry_topic": topic(),
                    "dead_letter_topic": topic(),
                },
                "spark": {
                    "query": query,
                    "checkpoint": str(tmp_path / query),
                    "shuffle_partitions": PARTITIONS,
                    "trigger": "available_now",
                },
            }
        )
        return Job(stack.kafka.bootstrap, tmp_path, settings)

    return make


@pytest.fixture
def job(bare_job: MakeJob, spark: SparkSession) -> MakeJob:
    """Like `bare_job`, in the one Spark."""

    def make(**operator: object) -> Job:
        made = bare_job(**operator)
        return Job(made.kafka, made.folder, made.settings, spark)

    return make
