"""Processor time and memory of a Spark job: of its driver, its JVM, and its Python workers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext


def used() -> Mapping[str, float]:
    """Return the processor seconds so far of each kind of process of this process's Spark."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001  # PySpark has no other way to its JVM
    jvm = psutil.Process(gateway.proc.pid)
    return {
        "driver": _seconds(psutil.Process(os.getpid())),
        "jvm": _seconds(jvm),
        "workers": sum(map(_seconds, jvm.children(recursive=True))),
    }


def between(before: Mapping[str, float], after: Mapping[str, float]) -> Mapping[str, float]:
    """Return the difference between two results of `used`."""
    return {kind: max(0.0, seconds - before.get(kind, 0.0)) for kind, seconds in after.items()}


def since(before: Mapping[str, float]) -> Mapping[str, float]:
    """Return the processor seconds since `before`."""
    return between(before, used())


def peak() -> int:
    """Return the most memory that one of Spark's Python processes has had, in bytes."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001  # as above
    found = [0]
    for each in psutil.Process(gateway.proc.pid).children(recursive=True):
        try:
            status = Path(f"/proc/{each.pid}/status").read_text("ascii")
        except FileNotFoundError:
            continue
        kib = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        found += [int(size) * 1024 for size in kib]
    return max(found)


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
