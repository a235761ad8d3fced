"""Run Flink, in one JVM, on the records of a topic."""

import tempfile
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from benchmarks.beside import tools
from benchmarks.beside.figures import Figures
from benchmarks.beside.turns import Contender
from dovecote.devstack.kafka.jars import JarSet

VERSION = "2.3.0"
_LONGEST_SECONDS = 700
_OPENED = ("java.lang", "java.util", "java.net", "java.nio", "java.time", "sun.nio.ch")
_OPTIONS = ("-Xmx2g", *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED))

JARS = JarSet(
    f"flink-{VERSION}",
    tools.dependencies(
        ("org.apache.flink", "flink-streaming-java", VERSION),
        ("org.apache.flink", "flink-clients", VERSION),
        ("org.apache.flink", "flink-connector-base", VERSION),
        ("org.apache.flink", "flink-statebackend-rocksdb", VERSION),
        ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
        ("org.slf4j", "slf4j-nop", "1.7.36"),
    ),
    tools.CHECKSUMS / f"flink-{VERSION}.sha256",
)


_P = TypeVar("_P")


class Job(NamedTuple):
    """The work that Flink gets."""

    work: str
    """`sessions` or `dedup`."""

    bootstrap: str
    source: str
    output: str
    warm_up: int
    records: int
    backend: str
    round: int = 1
    """Events of a round of `dedup`, in each of which a key has a first one."""


def prepare() -> None:
    """
    Fetch and compile it.

    Raises:
        PeerMissing: it cannot be had here.
    """
    tools.program("FlinkJob", JARS)


def run(job: Job) -> Mapping[str, float]:
    """
    Return what it says: records, seconds, cpu_seconds, closing_seconds and peak_bytes.

    Raises:
        PeerFailed: it did not do its work.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = (job.work, job.bootstrap, job.source, job.output)
        numbers = (str(job.warm_up), str(job.records))
        words = (*places, *numbers, job.backend, folder, str(job.round))
        command = tools.program("FlinkJob", JARS, *_OPTIONS)
        return tools.said([*command, *words], within=_LONGEST_SECONDS)


def contender(backend: str, promise: str, measure: Callable[[_P], Figures]) -> Contender[_P]:
    """Return Flink with this state as one that takes turns."""
    return Contender(
        f"flink_{backend}",
        promise,
        measure,
        prepare=prepare,
        settings={"version": VERSION, "checkpoint": "1s"},
    )


def figures(told: Mapping[str, float], differ: Mapping[str, int]) -> Figures:
    """Return what Flink said as figures."""
    return Figures(
        per_s=told["records"] / told["seconds"],
        cpu_us=told["cpu_seconds"] / told["records"] * 1e6,
        peak_mb=round(told["peak_bytes"] / 1e6),
        closing_s=told["closing_seconds"],
        **differ,
    )
