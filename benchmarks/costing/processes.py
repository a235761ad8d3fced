"""Read what a process and its children have used: processor time, wake-ups, memory."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Used:
    """The use of a process and of all processes below it."""

    cpu: float
    """Seconds of a processor."""
    wakeups: int
    """How often one of their threads gave up the processor to wait."""
    memory: int
    """Bytes of memory; a page that several share counts as a part for each."""
    processes: int


def used(pid: int) -> Used:
    """Return what `pid` and its children have used by now, of all that still live."""
    cpu, wakeups, memory, count = 0.0, 0, 0, 0
    first = psutil.Process(pid)
    for each in [first, *first.children(recursive=True)]:
        # A worker of Postgres may end while it is looked at.
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            times = each.cpu_times()
            memory += each.memory_full_info().pss
            wakeups += switches(each.pid)
            cpu += times.user + times.system
            count += 1
    return Used(cpu, wakeups, memory, count)


def seconds_of(pid: int) -> float:
    """Return the processor seconds of `pid` and of its children that live."""
    first, found = psutil.Process(pid), 0.0
    for each in [first, *first.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            found += times.user + times.system
    return found


def switches(pid: int) -> int:
    """Return the voluntary switches of context of all threads of a process."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += voluntary(
                task.joinpath("status").read_text(encoding="ascii", errors="replace")
            )
    return found


def voluntary(status: str) -> int:
    """Return the number of voluntary switches in the text of a `status` of /proc."""
    for line in status.splitlines():
        name, _, number = line.partition(":")
        if name == "voluntary_ctxt_switches":
            return int(number)
    msg = "no voluntary_ctxt_switches in the status: this needs Linux"
    raise ValueError(msg)
