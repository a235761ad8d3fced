"""Tell processes apart: sooner or later, another process gets the same id."""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/PID/stat after the command, which is in brackets and may hold anything.
_STATE, _START_TICKS = 0, 19


@dataclass(frozen=True, slots=True)
class Process:
    """One particular process: its id, and its start time."""

    pid: int
    began: str
    """Start time, only for comparison; no two processes share it and the id."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the process that has `pid` now; None if none runs."""
        began = _began(pid)
        return None if began is None else cls(pid, began)

    @property
    def running(self) -> bool:
        """Whether this very process still runs."""
        return Process.of(self.pid) == self

    def terminate(self) -> None:
        """Send SIGTERM to this very process, never to another one with its id."""
        if sys.platform == "linux":
            self._terminate_by_descriptor()
        elif self.running:
            os.kill(self.pid, signal.SIGTERM)

    def _terminate_by_descriptor(self) -> None:
        """As `terminate`; a process descriptor stays with its process."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.running:
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


def _began(pid: int) -> str | None:
    if sys.platform != "linux":
        return _began_elsewhere(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[_STATE] in "ZX":  # it has ended, but its parent has not reaped it
        return None
    # The ticks count from the boot: after the next boot they mean another time.
    return f"{_BOOT_ID.read_text().strip()}/{fields[_START_TICKS]}"


def _began_elsewhere(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        ended = process.status() == psutil.STATUS_ZOMBIE
        return None if ended else str(process.create_time())
    except psutil.NoSuchProcess:
        return None
