"""Measure what a start of Python costs with an import, or as a command."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks import harness

_COUNT = "; import sys; print(len(sys.modules))"

IMPORTS: Mapping[str, str] = {
    "python": "pass",
    "psycopg": "import psycopg",
    "confluent_kafka": "import confluent_kafka",
    "outbox": "import outbox",
    "outbox.write": "from outbox import Event, write",
    "dedup": "import dedup",
    "dedup.Consumer": "from dedup import Consumer",
}
"""Statements by what they show: the bare interpreter, two clients, and what users import."""

COMMANDS: Sequence[str] = (
    "--help",
    "relay run --help",
    "consume run --help",
    "push serve --help",
    "console --help",
    "audit --help",
    "find --help",
)
"""Arguments of `dovecote`."""


def measure(rounds: int) -> None:
    """Print a line for each import and command, taken in turn `rounds` times."""
    with tempfile.TemporaryDirectory() as folder:
        environ = bytecode_in(Path(folder))
        dovecote = str(Path(sys.executable).with_name("dovecote"))
        wanted = {name: [sys.executable, "-c", code] for name, code in IMPORTS.items()}
        wanted |= {f"dovecote {words}": [dovecote, *words.split()] for words in COMMANDS}
        for command in wanted.values():
            # The first start of each makes the bytecode.
            _once(command, environ)
        warm: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}
        for _ in range(rounds):
            for name, command in wanted.items():
                warm[name].append(_once(command, environ))
        bare = median(cpu for _, cpu in warm["python"])
        for name in wanted:
            cpu = median(each for _, each in warm[name])
            modules = _modules(IMPORTS[name], environ) if name in IMPORTS else None
            harness.emit(
                "costs_import",
                what=name,
                rounds=rounds,
                ms=_ms(median(each for each, _ in warm[name])),
                cpu_ms=_ms(cpu),
                cpu_ms_over_python=_ms(cpu - bare),
                **({} if modules is None else {"modules": modules}),
            )


def bytecode_in(folder: Path) -> Mapping[str, str]:
    """Return an environment in which Python keeps its bytecode in `folder`, and reads no other."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


def _once(command: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds that a command took, and those of a processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _modules(code: str, environ: Mapping[str, str]) -> int:
    command = [sys.executable, "-c", code + _COUNT]
    return int(subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True).stdout)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
