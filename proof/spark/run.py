"""Run a job on a standalone cluster, kill its parts, and compare its results with the right."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
from proof.spark.work import PARTITIONS, Name, Result, Verdict, Work, verdict, work

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
    job: Name = "dedup"
    kills: int = 20
    seed: int = 1
    executors: int = 2
    rows: int = 3_000
    """Records before each kill, and after the last."""
    batch: int = 1_500
    """The most records of a batch."""
    abortable: bool = False
    """Checkpoints are written with the file manager for object stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict, and what was done."""

    verdict: Verdict
    killed: Counter[str]
    starts: int
    batches: int
    dead: int
    rows_per_s: float
    log_bytes_per_batch: float
    seconds: float

    @property
    def is_well(self) -> bool:
        return self.verdict.is_well and not self.dead

    def fields(self) -> dict[str, Any]:
        return {
            **self.verdict._asdict(),
            "dead": self.dead,
            "killed": dict(self.killed),
            "starts": self.starts,
            "batches": self.batches,
            "rows_per_s": round(self.rows_per_s),
            "log_bytes_per_batch": round(self.log_bytes_per_batch),
            "seconds": round(self.seconds),
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
        self._work: Work = work(options.job)
        self._killed: Counter[str] = Counter()
        self._rest = threading.Event()  # never set, only waited for
        config = options.directory / "job.toml"
        config.write_text(_settings(options, self._work, bootstrap, s3), encoding="utf-8")
        self.driver = Driver(
            options.directory,
            cluster.url,
            [*self._work.command, "--config", str(config)],
            options=[*_options(options.directory)],
            environ={_SECRET: SECRET},
        )

    def run(self, began: float) -> Outcome:
        """Give the job its records, kill its parts meanwhile, and count."""
        options = self._options
        _make_topics(self._bootstrap, options.job)
        for number, what in enumerate(_plan(options.kills, self._dice), 1):
            self._send(self._work.given(options.rows))
            self._until(self.driver.is_up, _UP_SECONDS, "a batch since the last kill")
            self._rest.wait(self._dice.uniform(0, 2))
            self._kill(what)
            self._show(f"{options.job}: kill {number} of {options.kills}: {what}")
        self._send(self._work.given(options.rows))
        self._until(self.driver.is_up, _UP_SECONDS, "a batch since the last kill")
        self._send(self._work.last())
        wanted = self._work.expected()

        def is_done() -> bool:
            self.driver.is_up()
            return self._seen().total() >= wanted.total()

        self._until(is_done, _DONE_SECONDS, "all results are written", every=2.0)
        status = self.driver.stop()
        if status != 0:
            msg = f"the job ended with {status}, and not with 0; its log is {self.driver.log}"
            raise NotDone(msg)
        lines = self.driver.shown()
        warm = [each for each in lines if each["rows"]][_WARM_UP:]
        seconds = sum(each["seconds"] for each in warm)
        return Outcome(
            verdict=verdict(wanted, self._seen()),
            killed=self._killed,
            starts=self.driver.starts,
            batches=len(lines),
            dead=sum(1 for _ in _records(self._bootstrap, f"{options.job}.dead")),
            rows_per_s=sum(each["rows"] for each in warm) / seconds if seconds else 0.0,
            log_bytes_per_batch=self.driver.logged() / max(1, len(lines)),
            seconds=time.monotonic() - began,
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

    def _send(self, records: Iterator[Any]) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
            }
        )
        for each in records:
            producer.produce(
                f"{self._options.job}.in",
                each.value,
                each.key,
                partition=each.partition,
                headers=[("ce_id", each.id.encode()), ("ce_type", b"Order")],
            )
            producer.poll(0)
        if left := producer.flush(_ADMIN_SECONDS):
            msg = f"Kafka did not take {left} records in {_ADMIN_SECONDS:.0f} s"
            raise NotDone(msg)

    def _seen(self) -> Counter[Result]:
        found: Counter[Result] = Counter()
        for id_, value in _records(self._bootstrap, f"{self._options.job}.out"):
            if (result := self._work.result(id_, value)) is not None:
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


def _settings(options: Options, given: Work, bootstrap: str, s3: S3Server) -> str:
    conf = dict(s3.spark())
    if options.abortable:
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _ABORTABLE
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in conf.items())
    return (
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
        f'[source]\ntopics = ["{options.job}.in"]\nmax_offsets_per_trigger = {options.batch}\n'
        f"{given.tables.format(name=options.job)}"
        f'[spark]\nquery = "{options.job}"\ncheckpoint = "s3a://checkpoints/{options.job}"\n'
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
