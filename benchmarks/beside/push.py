"""
`push` beside Bento and Confluent's Parallel Consumer with Vert.x: signed requests, 100 in flight.

Each gets a topic of its own with the records of `push_delivery`, and the same endpoint. The first
half of the requests warms up, because a JVM compiles first; the second half counts, for all. In
the first turn of each, its signatures are verified before.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO, NamedTuple

from benchmarks import harness, pushed
from benchmarks.beside import tools
from benchmarks.beside.figures import Figures
from benchmarks.beside.model import overtaken
from benchmarks.beside.parallel import JARS
from benchmarks.beside.signatures import receiver
from benchmarks.beside.turns import Contender, Turns, Wanted
from benchmarks.push_delivery import KEYS, fill

IN_FLIGHT = 100
RECORDS = 120_000
_LONGEST_SECONDS = 150
_ENDING_SECONDS = 30
_VERIFIED = 100
_BENTO = tools.HERE / "bento/push.yaml"


class _Endpoint(NamedTuple):
    """Where records come from, and where they go."""

    bootstrap: str
    target: pushed.Target
    records: int


class _Running(NamedTuple):
    """A process that pushes."""

    pid: int
    why_ended: Callable[[], str | None]
    """Returns why it has ended; None while it runs."""


class _Seen(NamedTuple):
    """The requests that had come by some moment, and the processor time used by then."""

    requests: int
    seconds: float
    cpu: float


class _Way(NamedTuple):
    """The way from a topic to an endpoint."""

    bootstrap: str
    topic: str
    url: str


_Start = Callable[[_Way], AbstractContextManager[_Running]]


def run(wanted: Wanted) -> bool:
    """Measure them in turn; return whether one has failed."""
    ordered, unordered = "in order per key, at least once", "no order, at least once"
    contenders = [
        _contender("dovecote", ordered, _push, prepare=None),
        _contender("bento", unordered, _bento, prepare=tools.bento),
        _contender(
            "parallel_consumer",
            ordered,
            _vertx,
            prepare=lambda: tools.program("ParallelPush", JARS),
        ),
    ]
    turns = Turns("push", contenders)
    with harness.servers() as stack, pushed.target() as target:
        endpoint = _Endpoint(stack.kafka.bootstrap, target, wanted.of(RECORDS))
        for turn in range(wanted.rounds):
            turns.take(endpoint, turn)
    return turns.failed


def _contender(
    name: str, promise: str, start: _Start, *, prepare: Callable[[], object] | None
) -> Contender[_Endpoint]:
    verified = False

    def measure(endpoint: _Endpoint) -> Figures:
        nonlocal verified
        if not verified:
            _verify(endpoint.bootstrap, start)
            verified = True
        return _measure(endpoint, start)

    return Contender(
        name,
        f"{promise}, signed",
        measure,
        prepare=prepare or (lambda: None),
        ours=prepare is None,
        settings={"in_flight": IN_FLIGHT},
    )


def _verify(bootstrap: str, start: _Start) -> None:
    """
    Let a pusher send some requests to an endpoint that verifies their signatures.

    Raises:
        PeerFailed: it has ended, or one of them is not signed as Standard Webhooks say.
    """
    topic = harness.topic_at(bootstrap)
    fill(bootstrap, topic, _VERIFIED)
    deadline = time.monotonic() + _LONGEST_SECONDS
    with (
        receiver(pushed.SECRET) as found,
        start(_Way(bootstrap, topic, found.url)) as running,
    ):
        while found.taken < _VERIFIED and found.refused is None:
            if (why := running.why_ended()) is not None:
                raise tools.PeerFailed(why)
            if time.monotonic() > deadline:
                raise tools.PeerFailed(f"{found.taken} of {_VERIFIED} records came to be verified")
            time.sleep(0.05)
    if found.refused is not None:
        raise tools.PeerFailed(f"a request is not signed as it should be: {found.refused}")


def _measure(endpoint: _Endpoint, start: _Start) -> Figures:
    topic, target, records = (
        harness.topic_at(endpoint.bootstrap),
        endpoint.target,
        endpoint.records,
    )
    fill(endpoint.bootstrap, topic, records)
    target.begin_anew()
    with start(_Way(endpoint.bootstrap, topic, target.url("fast"))) as running:
        warm = _until(target, running, records // 2)
        last = _until(target, running, records)
        peak = harness.peak_bytes(running.pid)
    told = target.told(0, records)
    counted = last.requests - warm.requests
    return Figures(
        per_s=counted / (last.seconds - warm.seconds),
        cpu_us=(last.cpu - warm.cpu) / counted * 1e6,
        lost=records - told["fast"],
        repeated=told["repeated"],
        disordered=overtaken(told["times"], KEYS),
        peak_mb=round(peak / 1e6),
    )


def _until(target: pushed.Target, running: _Running, records: int) -> _Seen:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while True:
        told = target.told()
        if told["fast"] >= records:
            return _Seen(told["fast"], told["seconds"], harness.cpu_seconds(running.pid))
        if (why := running.why_ended()) is not None:
            raise tools.PeerFailed(why)
        if time.monotonic() > deadline:
            raise tools.PeerFailed(
                f"{told['fast']} of {records} records came within {_LONGEST_SECONDS} s"
            )
        time.sleep(0.05)


@contextmanager
def _push(way: _Way) -> Iterator[_Running]:
    wanted = pushed.subscription(way.topic, way.topic, way.url, IN_FLIGHT)
    with pushed.pusher(way.bootstrap, [wanted]) as push:
        # It says itself if it ends.
        yield _Running(push.pid, lambda: None)


@contextmanager
def _bento(way: _Way) -> Iterator[_Running]:
    environ = {
        "BOOTSTRAP": way.bootstrap,
        "TOPIC": way.topic,
        "URL": way.url,
        "IN_FLIGHT": str(IN_FLIGHT),
        "IDLE_PER_HOST": str(IN_FLIGHT),
        "KEY": pushed.KEY,
    }
    with _process([str(tools.bento()), "-c", str(_BENTO)], environ) as running:
        yield running


@contextmanager
def _vertx(way: _Way) -> Iterator[_Running]:
    command = tools.program("ParallelPush", JARS, "-Xmx1g")
    words = (*way, str(IN_FLIGHT), pushed.SECRET)
    with _process([*command, *words], {}) as running:
        yield running


@contextmanager
def _process(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[_Running]:
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield _Running(process.pid, lambda: _why_ended(process, log))
        finally:
            process.terminate()
            try:
                process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _why_ended(process: "subprocess.Popen[bytes]", log: IO[str]) -> str | None:
    if process.poll() is None:
        return None
    log.seek(0)
    return f"it ended with {process.returncode}: {tools.tail(log.read())}"
