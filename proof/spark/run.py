"""Run a job on a standalone cluster, kill its parts, and compare its results with the right."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.spark.jars import s3_jars
from dovecote.devstack.spark.s3 import SECRET, S3Server
from dovecote.devstack.spark.standalone import SparkCluster
from outbox.errors import DovecoteError
from proof.spark.driver import ROOT, Driver
from proof.spark.work import PARTITIONS, Fact, Name, Verdict, Work, verdict, work

Show: TypeAlias = Callable[[str], None]

_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_SECRET = "PROOF_S3_SECRET"  # noqa: S105  # the name of a variable
_UP_SECONDS = 300.0
_DONE_SECONDS = 600.0
_LOOK_SECONDS = 0.2
_ADMIN_SECONDS = 60.0
# Until then Java compiles, and Python imports.
_WARM_UP = 4


class NotDone(DovecoteError):
    """A job was not where it should be in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The job that is run, and how it is disturbed."""

    directory: Path
    jobs: tuple[Name, ...] = ("dedup",)
    """They run in one Spark; a kill hits all of them."""
    kills: int = 20
    seconds: float = 86_400.0
    """Ends the kills, even if there were fewer."""
    seed: int = 1
    executors: int = 2
    rows: int = 3_000
    """Records before each kill, and after the last."""
    batch: int = 1_500
    """The most records of a batch."""
    abortable: bool = False
    """Checkpoints are written with the file manager for object stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one job did."""

    verdict: Verdict
    dead: int
    batches: int
    rows_per_s: float

    @property
    def is_well(self) -> bool:
        return self.verdict.is_well and not self.dead

    def fields(self) -> dict[str, Any]:
        return {
            **self.verdict._asdict(),
            "dead": self.dead,
            "batches": self.batches,
            "rows_per_s": round(self.rows_per_s),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How all jobs did, and how they were disturbed."""

    jobs: Mapping[str, Result]
    killed: Counter[str]
    starts: int
    log_bytes_per_batch: float
    seconds: float

    @property
    def is_well(self) -> bool:
        return all(each.is_well for each in self.jobs.values())

    def fields(self) -> dict[str, Any]:
        return {
            "killed": dict(self.killed),
            "starts": self.starts,
            "log_bytes_per_batch": round(self.log_bytes_per_batch),
            "seconds": round(self.seconds),
            "jobs": {name: each.fields() for name, each in self.jobs.items()},
        }


def run(options: Options, show: Show) -> Outcome:
    """
    Run a job with its servers, until everything is written.

    Raises:
        DovecoteError: a server or the job does not start, or the job does not get on.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        s3 = stack.enter_context(S3Server(options.directory / "s3", buckets=("checkpoints",)))
        kafka = stack.enter_context(Kafka(options.directory / "kafka"))
        cluster = stack.enter_context(
            SparkCluster(
                options.directory / "spark",
                workers=options.executors,
                memory="2g",
                env={"PYTHONPATH": str(ROOT)},
            )
        )
        trial = Trial(options, bootstrap=kafka.bootstrap, cluster=cluster, s3=s3, show=show)
        stack.callback(trial.driver.kill)
        return trial.run(began)


class Trial:
    """One job, from its first record to its last result."""

    def __init__(
        self,
        options: Options,
        *,
        bootstrap: str,
        cluster: SparkCluster,
        s3: S3Server,
        show: Show,
    ) -> None:
        self._options, self._bootstrap, self._cluster = options, bootstrap, cluster
        self._show, self._dice = show, random.Random(options.seed)  # noqa: S311  # a seed
        self._works: dict[Name, Work] = {name: work(name) for name in options.jobs}
        self._killed: Counter[str] = Counter()
        self._rest = threading.Event()  # never set, only waited for
        files: list[str] = []
        for name, given in self._works.items():
            file = options.directory / f"{name}.toml"
            file.write_text(
                _settings(options, name, given, bootstrap=bootstrap, s3=s3), encoding="utf-8"
            )
            files.append(str(file))
        program = (
            ["together_stream.py", *files]
            if len(files) > 1
            else [*self._works[options.jobs[0]].command, "--config", files[0]]
        )
        self.driver = Driver(
            options.directory,
            cluster.url,
            program,
            options=[*_options(options.directory)],
            environ={_SECRET: SECRET},
        )

    def run(self, began: float) -> Outcome:
        """Give the jobs their records, kill their parts meanwhile, and count."""
        options = self._options
        for name in self._works:
            _make_topics(self._bootstrap, name)
        last = began + options.seconds
        for number, what in enumerate(_plan(options.kills, self._dice), 1):
            self._give()
            self._until(self.driver.is_up, _UP_SECONDS, "a batch since the last kill")
            if time.monotonic() > last:
                break
            self._rest.wait(self._dice.uniform(0, 2))
            self._kill(what)
            self._show(f"kill {number} of {options.kills}: {what}")
        self._give()
        self._until(self.driver.is_up, _UP_SECONDS, "a batch since the last kill")
        for name, given in self._works.items():
            self._send(name, given.last())
        self._until(self._is_done, _DONE_SECONDS, "all results are written", every=2.0)
        status = self.driver.stop()
        if status != 0:
            msg = f"the jobs ended with {status}, and not with 0; their log is {self.driver.log}"
            raise NotDone(msg)
        lines = self.driver.shown()
        return Outcome(
            jobs={name: self._result(name, given, lines) for name, given in self._works.items()},
            killed=self._killed,
            starts=self.driver.starts,
            log_bytes_per_batch=self.driver.logged() / max(1, len(lines)),
            seconds=time.monotonic() - began,
        )

    def _give(self) -> None:
        for name, given in self._works.items():
            self._send(name, given.given(self._options.rows))

    def _is_done(self) -> bool:
        self.driver.is_up()
        return all(
            self._seen(name, given).total() >= given.expected().total()
            for name, given in self._works.items()
        )

    def _result(self, name: Name, given: Work, lines: Sequence[Mapping[str, Any]]) -> Result:
        own = [each for each in lines if each["query"] == name]
        warm = [each for each in own if each["rows"]][_WARM_UP:]
        seconds = sum(each["seconds"] for each in warm)
        return Result(
            verdict=verdict(given.expected(), self._seen(name, given)),
            dead=sum(1 for _ in _records(self._bootstrap, f"{name}.dead")),
            batches=len(own),
            rows_per_s=sum(each["rows"] for each in warm) / seconds if seconds else 0.0,
        )

    def _kill(self, what: str) -> None:
        self._killed[what] += 1
        match what:
            case "driver":
                self.driver.kill()
            case "worker":
                worker = self._dice.choice(self._cluster.workers)
                worker.kill()
                worker.start()
            case _:
                found = self._cluster.executors()
                for each in self._dice.sample(found, min(1, len(found))):
                    each.kill()
        self.driver.wait_for_next()

    def _until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        what: str,
        *,
        every: float = _LOOK_SECONDS,
    ) -> None:
        last = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > last:
                msg = f"not in {seconds:.0f} s: {what}; the driver's log is {self.driver.log}"
                raise NotDone(msg)
            self._rest.wait(every)

    def _send(self, name: Name, records: Iterator[Any]) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
            }
        )
        for each in records:
            producer.produce(
                f"{name}.in",
                each.value,
                each.key,
                partition=each.partition,
                headers=[("ce_id", each.id.encode()), ("ce_type", b"Order")],
            )
            producer.poll(0)
        if left := producer.flush(_ADMIN_SECONDS):
            msg = f"Kafka did not take {left} records in {_ADMIN_SECONDS:.0f} s"
            raise NotDone(msg)

    def _seen(self, name: Name, given: Work) -> Counter[Fact]:
        found: Counter[Fact] = Counter()
        for id_, value in _records(self._bootstrap, f"{name}.out"):
            if (result := given.result(id_, value)) is not None:
                found[result] += 1
        return found


def _plan(kills: int, dice: random.Random) -> list[str]:
    """Return what is killed, in turn: mostly drivers and workers, each kind early on."""
    kinds = ["driver", "worker", "executor"]
    return [*kinds, *dice.choices(kinds, [4, 4, 2], k=kills)][:kills]


def _options(directory: Path) -> Iterator[str]:
    """Yield the options of spark-submit."""
    # As in an image that has the jars: executors then need not fetch them at each start.
    jars = f"{s3_jars()[0].parent}/*"
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    for part in ("driver", "executor"):
        yield from ("--conf", f"spark.{part}.extraClassPath={jars}")
        yield from ("--conf", f"spark.{part}.extraJavaOptions={java}")
        yield from ("--conf", f"spark.{part}.memory=700m")
    yield from ("--conf", f"spark.local.dir={directory / 'local'}")


def _settings(options: Options, name: Name, given: Work, *, bootstrap: str, s3: S3Server) -> str:
    conf = dict(s3.spark())
    if options.abortable:
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _ABORTABLE
    lines = "".join(f'"{key}" = "{value}"\n' for key, value in conf.items())
    return (
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
        f'[source]\ntopics = ["{name}.in"]\nmax_offsets_per_trigger = {options.batch}\n'
        f"{given.tables.format(name=name)}"
        f'[spark]\nquery = "{name}"\ncheckpoint = "s3a://checkpoints/{name}"\n'
        'trigger = "300ms"\nshuffle_partitions = 2\n'
        f'[spark.conf]\n{lines}"spark.hadoop.fs.s3a.secret.key" = {{ env = "{_SECRET}" }}\n'
    )


def _make_topics(bootstrap: str, job: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The events are old on purpose, and retention goes by their time.
    keep = {"retention.ms": "-1"}
    topics = [
        NewTopic(f"{job}.{each}", PARTITIONS, config=keep)
        for each in ("in", "out", "retry", "dead", "late")
    ]
    for made in admin.create_topics(topics).values():
        made.result(_ADMIN_SECONDS)


def _records(bootstrap: str, topic: str) -> Iterator[tuple[str, bytes]]:
    """Yield the id and the value of each record that a `read_committed` consumer sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "proof",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        left = set(range(PARTITIONS))
        consumer.assign([TopicPartition(topic, each, 0) for each in left])
        last = time.monotonic() + _ADMIN_SECONDS
        while left:
            if time.monotonic() > last:
                msg = f"{topic} was not read to its end in {_ADMIN_SECONDS:.0f} s"
                raise NotDone(msg)
            for message in consumer.consume(5_000, 0.2):
                error = message.error()
                if error is None:
                    id_ = dict(message.headers() or []).get("ce_id") or b""
                    text = id_ if isinstance(id_, str) else id_.decode()
                    yield text, message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its public name
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
