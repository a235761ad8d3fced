"""
Keep scripts within their time and their memory; they run in a helper process.

Starlark can be stopped between its instructions, but not within one. Doubling a text forty times,
or comparing a list that holds itself twice with itself, takes for ever and all memory there is. So
the kernel kills the process, and the helper's parent knows from a number in shared memory which
call it was.
"""

import mmap
import os
import resource
import signal
import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from spark_jobs.operators.aggregation.scripts.scripts import ScriptError
from spark_jobs.operators.step import NEVER

T = TypeVar("T")

_NUMBER = struct.Struct("q")
SIZE = _NUMBER.size
REST = 0
"""Calls are counted from 1."""
_MIB = 2**20
# The memory that a call may leave behind besides its answer; after enough of it, the size is read
# again.
_CALL_BYTES = 4_096
# Starlark's values take some times the text that they are made of.
_FOR_EACH = 16


class Limits:
    """Counts the calls of a request, and lets the kernel end a process whose call is stuck."""

    def __init__(self, shared: mmap.mmap, *, milliseconds: int, mebibytes: int) -> None:
        self._shared, self._mebibytes = shared, mebibytes
        self._seconds = milliseconds / 1000
        self._number = 0
        self._refused: Mapping[int, str] = {}
        self._last = NEVER
        self._usual = resource.getrlimit(resource.RLIMIT_AS)
        # Linux reports the size of a process. Without it no limit would be right, and macOS
        # refuses one below the size that is in use: only the time is limited there.
        self._size = _Size.of_this_process()
        self._limit, self._grown = 0, NEVER

    def begin(self, refused: Mapping[int, str]) -> None:
        """
        Begin a request; `refused` are calls that have ended a helper, with the reasons.

        Number `REST` stands for all calls after the last of them.
        """
        self._number, self._refused = 0, refused
        self._grown = NEVER  # the memory may have changed meanwhile
        self._last = max(refused, default=0) if REST in refused else NEVER

    def call(self, work: Callable[[], str], size: int) -> str:
        """
        Make one call, whose input has `size` characters: more input may take more.

        Raises:
            ScriptError: the call has ended a helper before.
        """
        self._number += 1
        number = REST if self._number > self._last else self._number
        if (reason := self._refused.get(number)) is not None:
            raise ScriptError(reason)
        _NUMBER.pack_into(self._shared, 0, self._number)
        try:
            answer = self.guarded(work, size)
        finally:
            _NUMBER.pack_into(self._shared, 0, 0)
        self._grown += len(answer) + _CALL_BYTES
        return answer

    def guarded(self, work: Callable[[], T], size: int = 0) -> T:
        """Let the kernel end the process if `work` takes more than a call may."""
        # The limit is for the call alone, beyond what is in use: the call is not to blame for what
        # is made of its answer, nor for other calls.
        usual, hard = self._usual
        if self._size is not None:
            if self._grown > _MIB or size > _MIB:  # much input was made of much else
                self._limit, self._grown = self._size() + self._mebibytes * _MIB, 0
            limit = self._limit + size * _FOR_EACH
            if hard == resource.RLIM_INFINITY or limit < hard:
                resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        # Processor time, because a busy machine is no reason to give up a script.
        signal.setitimer(signal.ITIMER_PROF, self._seconds * (1 + size // _MIB))
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if self._size is not None:
                resource.setrlimit(resource.RLIMIT_AS, (usual, hard))


def called(shared: mmap.mmap) -> int:
    """Return the number of the call that was running; 0: none."""
    found: int = _NUMBER.unpack_from(shared, 0)[0]
    return found


class _Size:
    """The size of this process in bytes; it is read often."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def of_this_process(cls) -> "_Size | None":
        """Return the size, or None if the system does not report it."""
        try:
            return cls(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    def __call__(self) -> int:
        return int(os.pread(self._file, 64, 0).split(b" ", 1)[0]) * mmap.PAGESIZE
