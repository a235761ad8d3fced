"""Measure what each part costs while nothing happens."""

import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks import harness, pushed
from benchmarks.costing.parts import PARTS, Place, prepare, running, subscribe
from benchmarks.costing.processes import Used, seconds_of, used
from benchmarks.costing.starts import Events
from dovecote.devstack import Stack

_SETTLES_SECONDS = 8.0
_LONGEST_SECONDS = 120.0


def measure(stack: Stack, seconds: float) -> None:
    """Print a line for each part, after one for the servers alone."""
    _measure(stack, "none", seconds)
    for name in PARTS:
        _measure(stack, name, seconds)
    _measure(stack, "relay", seconds, capture="wal")


def _measure(stack: Stack, name: str, seconds: float, *, capture: str = "table") -> None:
    with tempfile.TemporaryDirectory() as folder, pushed.target() as target:
        # The auditor needs rows that are kept.
        retention = "1h" if name == "audit" else "0s"
        at = prepare(stack, Path(folder), capture=capture, retention=retention)
        if name.startswith("push"):
            subscribe(at, target.url("fast"))
        part = nullcontext() if name == "none" else running(PARTS[name], at)
        events = Events(at, target)
        with part as process:
            pid = None if process is None else process.pid
            if name.startswith(("relay", "consumer", "push")):
                came = events.add(name)
                harness.until(
                    lambda: came() is not None,
                    within=_LONGEST_SECONDS,
                    what=f"the first event of {name}",
                )
            # By then the effects of the start are over: caches and pauses have settled.
            time.sleep(_SETTLES_SECONDS)
            before = _look(at, pid)
            time.sleep(seconds)
            after = _look(at, pid)
        _tell(name, capture, before, after)
    harness.drop_slots(at.dsn)


@dataclass(frozen=True, slots=True)
class _Looked:
    """The use of the part and of the servers by one moment."""

    at: float
    part: Used | None
    postgres: float
    kafka: float
    wal: int


def _look(at: Place, pid: int | None) -> _Looked:
    stack = at.stack
    # This connection is over before the next look, and with it what it has used.
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as conn:
        ((place,),) = conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchall()
    return _Looked(
        time.monotonic(),
        None if pid is None else used(pid),
        seconds_of(stack.postgres.pid),
        seconds_of(stack.kafka.pid),
        int(place),
    )


def _tell(name: str, capture: str, before: _Looked, after: _Looked) -> None:
    took = after.at - before.at
    fields: dict[str, object] = {}
    if before.part is not None and after.part is not None:
        fields = {
            "cpu_share": round((after.part.cpu - before.part.cpu) / took, 4),
            "wakeups_per_s": round((after.part.wakeups - before.part.wakeups) / took, 1),
            "memory_mb": round(after.part.memory / 1e6, 1),
            "processes": after.part.processes,
        }
    harness.emit(
        "costs_idle",
        part=name,
        **({"capture": capture} if name == "relay" else {}),
        seconds=round(took, 1),
        **fields,
        postgres_cpu_share=round((after.postgres - before.postgres) / took, 4),
        kafka_cpu_share=round((after.kafka - before.kafka) / took, 4),
        wal_bytes_per_s=round((after.wal - before.wal) / took),
    )
