"""The running pipeline: the service's writers, the relay and the Spark job, each a process."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.demo import configs, service, topics
from dovecote.demo.children import Child, ChildFailed, dovecote, module
from dovecote.demo.configs import Files
from dovecote.demo.story import ExpectedResults
from dovecote.demo.view import Snapshot, Stage
from dovecote.demo.watch import Arrivals, Ends, batched
from outbox import schema

_RELAY_STOP_SECONDS = 20.0
_SPARK_STOP_SECONDS = 60.0
# The broker takes at most this long to finish a requested commit.
_COMMIT_SECONDS = 0.1

RESULTS = (configs.DEPARTURES, configs.ARRIVALS, configs.TRIPS, configs.DAYS)


class Plan(NamedTuple):
    """The programs to run, and their input."""

    dsn: str
    bootstrap: str
    directory: Path
    flights: int
    writers: int
    committed: int
    """Events that the writers will have committed in the end."""

    results: ExpectedResults
    """The expected results of the jobs."""


def prepare(plan: Plan) -> Files:
    """Create tables, topics and configuration files."""
    with psycopg.connect(plan.dsn) as conn:
        schema.install(conn)
        service.install(conn)
    topics.make(plan.bootstrap)
    return configs.write(plan.directory, dsn=plan.dsn, bootstrap=plan.bootstrap)


class Pipeline:
    """
    All programs between Postgres and the last topic.

    As a context manager it ends, at exit, the ones that still run.
    """

    def __init__(self, plan: Plan, files: Files, arrivals: Arrivals) -> None:
        self._plan, self._files, self._arrivals = plan, files, arrivals
        self._ends = Ends(plan.bootstrap, configs.FLIGHTS, configs.PARTITIONS)
        self._dsn, self._secrets = _without_password(plan.dsn)
        self._conn = psycopg.connect(plan.dsn, autocommit=True)
        self._writers: list[Child] = []
        self._relay: Child | None = None
        self._spark: Child | None = None
        self.kills = 0
        self.last_committed = 0
        """The last result of `committed`, because each call runs a count."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in (*self._writers, self._relay, self._spark):
            if child is not None:
                child.end()
        self._conn.close()

    def start_jobs(self) -> None:
        """Start the Spark jobs, which take a while to get ready."""
        files = self._files
        jobs = [str(file) for file in (files.dedup, files.trips, files.days)]
        self._spark = Child("Spark", dovecote("spark", "together", *jobs), self._log("spark"))

    def are_jobs_ready(self) -> bool:
        """Return whether the first job's query waits for records."""
        return (configs.checkpoint(self._plan.directory) / "metadata").exists()

    def start_writers(self) -> None:
        """Start the service's writers, all at once."""
        self._writers = [self._writer(number) for number in range(self._plan.writers)]

    def start_relay(self) -> int:
        """Start a relay; return its process id."""
        self._relay = Child(
            "the relay",
            dovecote("relay", "run", "--config", str(self._files.relay)),
            self._log("relay"),
            environment=self._secrets,
        )
        return self._relay.pid

    def catch_relay(self) -> bool:
        """Pause the relay if it has a transaction open now; return whether it has."""
        if self._relay is None or not self.is_relay_busy():
            return False
        self._relay.pause()
        # It may have requested the commit already, which the broker then finishes without it.
        time.sleep(_COMMIT_SECONDS)
        if self.is_relay_busy():
            return True
        self._relay.resume()
        return False

    def kill_relay(self) -> int:
        """SIGKILL the relay; return its former process id."""
        if self._relay is None or self._relay.status is not None:
            msg = "there is no relay to kill"
            raise ChildFailed(msg)
        pid = self._relay.pid
        self._relay.kill()
        self._relay = None
        self.kills += 1
        return pid

    def stop(self) -> None:
        """
        End the relay and the Spark jobs as their operator would.

        Raises:
            ChildFailed: one of them did not end well.
        """
        if self._relay is not None:
            self._relay.stop(within=_RELAY_STOP_SECONDS)
        if self._spark is not None:
            self._spark.stop(within=_SPARK_STOP_SECONDS)

    def require_health(self) -> None:
        """
        Check that no program has failed.

        Raises:
            ChildFailed: one has ended.
        """
        for child in (self._relay, self._spark):
            if child is not None and child.status is not None:
                raise ChildFailed(child.said())
        for writer in self._writers:
            if writer.status not in {None, 0}:
                raise ChildFailed(writer.said())
        if self._arrivals.error is not None:
            msg = f"the topics cannot be read any more: {self._arrivals.error}"
            raise ChildFailed(msg)

    def is_relay_busy(self) -> bool:
        """Return whether the relay has a Kafka transaction with records under way."""
        return self._ends.has_open_transaction()

    def are_writers_done(self) -> bool:
        return len(self._writers) == self._plan.writers and all(
            writer.status == 0 for writer in self._writers
        )

    def committed(self) -> int:
        """Return how many events the service has committed."""
        row = self._conn.execute("SELECT count(*) FROM flight_ops.event_log").fetchone()
        self.last_committed = int(row[0]) if row else 0
        return self.last_committed

    def published(self) -> int:
        """Return how many records of the service are visible, without those that came back."""
        return self._arrivals.fresh(configs.FLIGHTS)

    def is_all_published(self) -> bool:
        return self.are_writers_done() and self.published() >= self.committed()

    def unfinished(self) -> str | None:
        """Return the step that the pipeline is waiting for; None: all is done."""
        if not self.are_writers_done():
            return "the writers"
        committed, published = self.committed(), self.published()
        if published < committed:
            return f"the relay: {committed - published} of {committed} rows are not published"
        if (read := self._read()) != (end := self._ends.stable()):
            return f"the first Spark job: its finished batches end at {read}, the topic at {end}"
        for topic, wanted in zip(RESULTS, self._plan.results, strict=True):
            if (there := self._arrivals.count(topic)) < wanted:
                return f"the Spark jobs: {there} of {wanted} records are in {topic}"
        return None

    def snapshot(self) -> Snapshot:
        """Return the progress of all stages."""
        arrivals, total = self._arrivals, self._plan.committed
        read = arrivals.count_before(configs.FLIGHTS, self._read())
        return Snapshot(
            stages=(
                Stage("committed", self.committed(), total),
                Stage("published", self.published(), total),
                Stage("deduplicated", read, total),
            ),
            outcomes=tuple((topic, arrivals.count(topic)) for topic in topics.TOPICS[1:7]),
            kills=self.kills,
        )

    def _read(self) -> Mapping[int, int]:
        return batched(configs.checkpoint(self._plan.directory), configs.FLIGHTS)

    def _writer(self, number: int) -> Child:
        plan = self._plan
        return Child(
            f"writer {number}",
            module(
                "dovecote.demo.service",
                *("--dsn", self._dsn),
                *("--topic", configs.FLIGHTS),
                *("--flights", str(plan.flights)),
                *("--writer", str(number)),
                *("--writers", str(plan.writers)),
            ),
            self._log(f"writer-{number}"),
            environment=self._secrets,
        )

    def _log(self, name: str) -> Path:
        return self._plan.directory / "logs" / f"{name}.log"


def _without_password(dsn: str) -> tuple[str, dict[str, str]]:
    """Return `dsn` without its password, and the variable that holds the password instead."""
    parameters = conninfo_to_dict(dsn)
    password = parameters.pop("password", None)
    secrets = {} if password is None else {"PGPASSWORD": str(password)}
    return make_conninfo("", **parameters), secrets
