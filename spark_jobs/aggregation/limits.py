"""
What keeps scripts within their time and their memory: the process they run in is a helper.

Starlark can be asked to stop between its instructions, but not within one: to double a text forty
times, or to compare a list with itself that holds itself twice over, takes for ever and all memory
there is. So the kernel ends the process then, and the helper's parent knows from a number in
shared memory which call it was.
"""

import mmap
import resource
import signal
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from spark_jobs.aggregation.scripts import ScriptError

T = TypeVar("T")

_NUMBER = struct.Struct("q")
SIZE = _NUMBER.size
_MIB = 2**20
# Linux tells how large a process is; elsewhere this is more than what it is when it starts.
_UNKNOWN_SIZE = 1_024 * _MIB


class Limits:
    """Counts the calls of a request, and has the kernel end the process with one that is stuck."""

    def __init__(self, shared: mmap.mmap, *, milliseconds: int, mebibytes: int) -> None:
        self._shared, self._mebibytes = shared, mebibytes
        self._seconds = milliseconds / 1000
        self._number = 0
        self._refused: Mapping[int, str] = {}

    def begin(self, refused: Mapping[int, str]) -> None:
        """Begin a request; `refused` are calls that ended a helper before, and why."""
        self._number, self._refused = 0, refused
        limit = _size() + self._mebibytes * _MIB
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def call(self, work: Callable[[], T]) -> T:
        """
        Make one call.

        Raises:
            ScriptError: it has ended a helper before.
        """
        self._number += 1
        if (reason := self._refused.get(self._number)) is not None:
            raise ScriptError(reason)
        _NUMBER.pack_into(self._shared, 0, self._number)
        try:
            return self.guarded(work)
        finally:
            _NUMBER.pack_into(self._shared, 0, 0)

    def guarded(self, work: Callable[[], T]) -> T:
        """Have the kernel end the process if `work` takes more than a call may."""
        # Of processor time: a busy machine is no reason to give a script up.
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def called(shared: mmap.mmap) -> int:
    """Return the number of the call that was under way; 0: none."""
    found: int = _NUMBER.unpack_from(shared, 0)[0]
    return found


def _size() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except FileNotFoundError:
        return _UNKNOWN_SIZE
    return pages * mmap.PAGESIZE
