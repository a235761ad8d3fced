"""Write events through every part while tokens expire, let their provider fail, and count."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.push.store import schema as push_schema
from outbox import Event, schema, write
from outbox.errors import DovecoteError
from outbox.producer.producer import Producer
from proof.identities.arrived import arrived as arrived_in
from proof.identities.parts import DEDUPED, TOPIC, Crew, Part, crew
from proof.identities.provider import Guarded, guarded

_PARTITIONS, _KEYS = 4, 16
_SETTLE_SECONDS = 180.0
# A producer that sends this rarely, in lives of a token, is idle while its tokens are renewed.
_IDLE = 0.7

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parameters of a run."""

    directory: Path
    """The folder for settings and logs."""

    seconds: float
    """How long events are written."""
    life: float = 60.0
    """How long a token lives, in seconds."""
    failing: float = 0.0
    """For how many lives the provider fails, in the middle of the run."""
    spark: bool = True
    pace: float = 0.05
    """The pause of the writer between two transactions, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fate of the events, and of the parts."""

    written: int
    direct: dict[str, int]
    """How many events of the direct producer went which way."""
    lost: dict[str, int]
    doubled: dict[str, int]
    longest_gap: dict[str, float]
    """The longest time between two arrivals while the provider works, in seconds."""
    gap_while_failing: dict[str, float]
    unready: dict[str, float]
    """For how many seconds `/readyz` was not ready while the provider works."""
    unready_while_failing: dict[str, float]
    healed: float
    """How many seconds after the provider was back every part was ready with a new token."""
    restarts: int
    """How often the Spark job ended because Kafka was away, and was started again."""
    named: list[str]
    """The parts whose `/readyz` has said what the provider answered."""
    tokens: int
    seconds: float

    @property
    def is_well(self) -> bool:
        return not (any(self.lost.values()) or any(self.doubled.values()))

    def fields(self) -> dict[str, object]:
        """Return it as one flat mapping."""
        return {
            name: {k: round(v, 2) for k, v in value.items()} if isinstance(value, dict) else value
            for name, value in asdict(self).items()
        }


def run(options: Options, show: Show) -> Outcome:
    """
    Run the proof.

    Raises:
        DovecoteError: a part ended, or did not begin.
    """
    show("starting Postgres and Kafka")
    with guarded(options.life) as servers:
        dsn = _prepare(servers)
        kafka = servers.kafka()
        del kafka["identity"]
        identity = servers.provider.table()
        show("starting the parts")
        with crew(options.directory, dsn, kafka, identity, spark=options.spark) as parts:
            return _Proof(options, servers, dsn, parts=parts, show=show).run()


def _prepare(servers: Guarded) -> str:
    with psycopg.connect(servers.stack.postgres.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE proof")
    dsn = psycopg.conninfo.make_conninfo(servers.stack.postgres.dsn, dbname="proof")
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
        push_schema.install(conn)
    admin = AdminClient({"bootstrap.servers": servers.stack.kafka.bootstrap})
    names = (TOPIC, DEDUPED, f"{DEDUPED}-retry", f"{DEDUPED}-dead")
    for made in admin.create_topics([NewTopic(name, _PARTITIONS) for name in names]).values():
        made.result(30)
    with psycopg.connect(dsn) as conn:
        # A job is ready once it has finished a batch.
        write(conn, event("first"))
    return dsn


def event(key: str) -> Event:
    """Return an event of the proof."""
    return Event(topic=TOPIC, key=key, type="OrderPlaced", source="/proof", value={"a": 1})


@dataclass
class _Written:
    ids: list[str] = field(default_factory=list)
    direct: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None


class _Proof:
    def __init__(
        self, options: Options, servers: Guarded, dsn: str, *, parts: Crew, show: Show
    ) -> None:
        self._options, self._servers, self._dsn = options, servers, dsn
        self._crew, self._show = parts, show
        self._written = _Written()
        self._enough, self._rest = threading.Event(), threading.Event()
        self._failed_at = self._back_at = float("inf")

    def run(self) -> Outcome:
        began, options = time.time(), self._options
        outage = options.failing * options.life
        start = began + max((options.seconds - outage) / 2, 0.0)
        healed = 0.0
        with self._writing():
            while (now := time.time()) < began + options.seconds:
                if outage and now >= start and self._failed_at > now:
                    self._failed_at, self._servers.provider.failing = now, 503
                    self._show(f"{now - began:6.1f} s  the provider fails")
                if outage and now >= start + outage and self._back_at > now:
                    self._back_at, self._servers.provider.failing = now, 0
                    self._show(f"{now - began:6.1f} s  the provider is back")
                    healed = self._await_healed()
                for part in self._crew.parts.values():
                    part.look()
                self._rest.wait(0.25)
        self._show("the writers have stopped; waiting for the last events")
        arrived = self._settle()
        return self._outcome(arrived, began=began, healed=healed)

    def _await_healed(self) -> float:
        """Wait until every part is ready, and has no trouble with tokens any more."""
        while not all(map(_is_healed, self._crew.parts.values())):
            self._rest.wait(0.25)
            if time.time() - self._back_at > _SETTLE_SECONDS:
                break
        return time.time() - self._back_at

    @contextmanager
    def _writing(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._noting, args=(work,))
            for work in (self._through_outbox, self._directly)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._enough.set()
            for thread in threads:
                thread.join()
        if self._written.failure is not None:
            raise self._written.failure

    def _noting(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # raised in the main thread
            self._written.failure = error

    def _through_outbox(self) -> None:
        with psycopg.connect(self._dsn) as conn:
            number = 0
            while not self._enough.wait(self._options.pace):
                written = event(f"key-{number % _KEYS}")
                with conn.transaction():
                    write(conn, written)
                self._written.ids.append(written.id)
                number += 1

    def _directly(self) -> None:
        """Send an event now and then; in between, nobody but its own thread polls."""
        kafka = self._servers.kafka()
        with Producer(self._dsn, kafka) as producer:
            while not self._enough.wait(self._options.life * _IDLE):
                sent = event("direct")
                self._written.direct[producer.send(sent)] += 1
                self._written.ids.append(sent.id)

    def _settle(self) -> dict[str, list[tuple[float, str]]]:
        """Wait until every event has arrived everywhere; return what has."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        wanted = set(self._written.ids)
        while True:
            arrived = {
                "consumer": self._crew.handled(),
                "push": list(self._crew.endpoint.notes),
            }
            if self._options.spark:
                arrived["spark"] = arrived_in(self._servers.stack.kafka.bootstrap, DEDUPED)
            left = {name: len(wanted - {id_ for _, id_ in each}) for name, each in arrived.items()}
            if not any(left.values()) or time.monotonic() > deadline:
                return {**arrived, "relay": arrived_in(self._servers.stack.kafka.bootstrap, TOPIC)}
            for part in self._crew.parts.values():
                part.look()
            self._rest.wait(0.5)

    def _outcome(
        self, arrived: dict[str, list[tuple[float, str]]], *, began: float, healed: float
    ) -> Outcome:
        wanted, end = set(self._written.ids), began + self._options.seconds
        failing = [(self._failed_at, self._back_at + healed)] if healed else []
        well = (
            [(began, self._failed_at), (self._back_at + healed, end)]
            if failing
            else [(began, end)]
        )
        looks = {name: part.looks for name, part in self._crew.parts.items()}
        return Outcome(
            written=len(wanted),
            direct=dict(self._written.direct),
            lost={name: len(wanted - {i for _, i in each}) for name, each in arrived.items()},
            # A consumer and push may get an event again after a rebalance; these two may not.
            doubled={
                name: len(each) - len({id_ for _, id_ in each})
                for name, each in arrived.items()
                if name in {"relay", "spark"}
            },
            longest_gap={name: _gap(each, well) for name, each in arrived.items()},
            gap_while_failing={name: _gap(each, failing) for name, each in arrived.items()},
            unready={
                name: sum(each.unready(*span) for span in well) for name, each in looks.items()
            },
            unready_while_failing={
                name: sum(each.unready(*span) for span in failing) for name, each in looks.items()
            },
            healed=round(healed, 1),
            restarts=sum(part.restarts for part in self._crew.parts.values()),
            named=sorted(name for name, each in looks.items() if each.named("HTTP 503")),
            tokens=len(self._servers.provider.given),
            seconds=round(time.time() - began, 1),
        )


def _is_healed(part: Part) -> bool:
    return part.look() and "no new Kafka token" not in part.looks.said[-1][2]


def _gap(arrived: Iterable[tuple[float, str]], spans: Sequence[tuple[float, float]]) -> float:
    """Return the longest time in which nothing arrived within the spans."""
    times = sorted(at for at, _ in arrived)
    longest = 0.0
    for since, until in spans:
        inside = [since, *(at for at in times if since < at < until), until]
        longest = max(longest, *(b - a for a, b in pairwise(inside)))
    return longest


def explained(error: DovecoteError, folder: Path) -> str:
    """Return what to print about a run that could not be finished."""
    return f"proof: {error}\nThe logs of the parts are in {folder}"
