"""
The deduplicating job beside Flink, from topic to topic, exactly once.

Dovecote's job writes the first match of a key in each micro-batch, and remembers nothing. Flink
has no such batches: it writes the first one of each round of events, as many as a batch has.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks import harness, spark_dedup
from benchmarks.beside import flink, tools
from benchmarks.beside.figures import Figures
from benchmarks.beside.model import differences, firsts
from benchmarks.beside.sessions import BATCHES
from benchmarks.beside.turns import Contender, Turns, Wanted
from benchmarks.beside.written import committed
from dovecote.devstack import Stack

ROWS = 2_000_000
"""Half of them warm up."""

COPIES, PER_KEY = 2, 10
_EVENT = slice(10, 22)
"""Where a value has the number of its event."""


@dataclass
class Place:
    """The servers of one round, and the topic once the job has filled it."""

    stack: Stack
    folder: Path
    rows: int
    """Rows that count, and as many before them that warm up."""

    topic: str = ""

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return self.stack.kafka.bootstrap

    @property
    def a_batch(self) -> int:
        """Rows of one of Dovecote's batches."""
        return max(PER_KEY, self.rows // BATCHES)

    @property
    def round(self) -> int:
        """Events of a batch."""
        return self.a_batch // COPIES

    @cached_property
    def events(self) -> list[tuple[bytes, int]]:
        """Key and number of each record on the topic, in the order of each partition."""
        return list(_events(self.bootstrap, self.topic))


def run(wanted: Wanted) -> bool:
    """Measure them in turn; return whether one has failed."""
    contenders = [
        Contender("dovecote", "the first of a key in each batch, exactly once", _job, ours=True),
        *(_flink(backend) for backend in ("hashmap", "rocksdb")),
    ]
    turns = Turns("dedup", contenders)
    for turn in range(wanted.rounds):
        with tempfile.TemporaryDirectory() as folder, harness.servers() as stack:
            turns.take(Place(stack, Path(folder), wanted.of(ROWS) // 2), turn)
    return turns.failed


def _job(place: Place) -> Figures:
    args = spark_dedup.arguments(
        rows=place.a_batch, batches=BATCHES, warm_up=BATCHES, copies=COPIES, per_key=PER_KEY
    )
    found = spark_dedup.run(args, place.stack, place.folder, "auto")
    place.topic = found.source
    # The ends of its batches are its own affair, so only what holds for all of them is compared:
    # each key is there, and what was written was on the topic.
    known = set(place.events)
    keys, strangers = set(), 0
    for each in _events(place.bootstrap, f"{found.source}-out"):
        keys.add(each[0])
        strangers += each not in known
    return Figures(
        per_s=found.rows / found.seconds,
        cpu_us=sum(found.cpu.values()) / found.rows * 1e6,
        lost=len({key for key, _ in known} - keys),
        wrong=strangers,
    )


def _flink(backend: str) -> Contender[Place]:
    def measure(place: Place) -> Figures:
        if not place.topic:
            raise tools.PeerFailed("Dovecote's job has filled no topic")
        output = harness.topic_at(place.bootstrap)
        job = flink.Job(
            "dedup",
            place.bootstrap,
            place.topic,
            output,
            warm_up=place.a_batch * BATCHES,
            records=place.a_batch * BATCHES,
            backend=backend,
            round=place.round,
        )
        told = flink.run(job)
        right = firsts(place.events, place.round)
        written = (
            ((key, event // place.round), event) for key, event in _events(place.bootstrap, output)
        )
        return flink.figures(told, differences(right, written)._asdict())

    what = "the first of a key in each round of events, exactly once"
    return flink.contender(backend, what, measure)


def _events(bootstrap: str, topic: str) -> Iterator[tuple[bytes, int]]:
    for each in committed(bootstrap, topic):
        yield each.key() or b"", int((each.value() or b"")[_EVENT])
