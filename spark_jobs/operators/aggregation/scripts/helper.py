"""The parent's side of the scripts' process: send requests, and restart it when it ends."""

import atexit
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import OrderedDict
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from outbox.errors import BadSettings, DovecoteError
from spark_jobs.operators.aggregation.chunks import Chunks
from spark_jobs.operators.aggregation.scripts.limits import REST, SIZE, called
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.step import Output

_KEPT = 4
_NEEDED = ("LD_LIBRARY_PATH", "PYTHONHOME")
_TRIES = 100
"""How many calls of one request may end a helper before it stops making calls."""


class SharedState(NamedTuple):
    """A state that a helper may also have."""

    data: bytes
    start: int = 0
    """The start of the helper that knows the state; 0: none."""
    number: int = 0
    keys: range = range(0)
    open: int = 0
    """Its number of open windows."""


class Stepped(NamedTuple):
    """The result of a step on its way to the parent."""

    number: int
    """The number by which this process knows the state."""
    data: bytes
    keys: int
    open: int
    """The number of open windows."""
    outputs: list[Output]
    deadline: int | None
    written: list[tuple[int, int, bytes]]
    """Chunks to be written: the window, the number, and the events."""
    dropped: list[tuple[int, int]]
    """Windows whose chunks go, and the number of these."""


class HelperFailed(DovecoteError):
    """The process in which scripts run cannot do its work."""


class Helper:
    """
    A process that runs the scripts of a step.

    Raises:
        BadSettings: a script or a schema is not valid.
    """

    def __init__(self, settings: AggregationSettings) -> None:
        self._settings = settings
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the helper
        file.truncate(SIZE)
        self._file, self._shared = file, mmap.mmap(file.fileno(), SIZE)
        self.starts = 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def ask(
        self,
        method: str,
        *arguments: Any,  # noqa: ANN401
        state: SharedState | None = None,
        chunks: Chunks | None = None,
    ) -> Any:  # noqa: ANN401
        """
        Return what `method` of the host returns; `state` comes before its arguments.

        `chunks` is where the host's questions about chunks are answered.

        If a script call ends the process, that call has failed, and a new process does the rest.
        After many such calls the following calls fail too, because starting again for each takes
        too long.

        Raises:
            HelperFailed: the process ended, and no script is to blame.
        """
        refused: dict[int, str] = {}
        given = arguments
        is_known = state is not None and state.start == self.starts
        while True:
            if state is not None:
                given = (state.number, None if is_known else state.data), *arguments
            try:
                self._connection.send((method, given, refused))
                found = self._received(chunks)
            except (EOFError, ConnectionError):
                refused |= self._blamed()
                if len(refused) >= _TRIES:
                    refused[REST] = f"{_TRIES} calls of scripts have ended their process before it"
                self._start()
                found = None
            else:
                if state is None or found is not None:
                    return found
            is_known = False

    def close(self) -> None:
        """End the process. Otherwise it ends with its parent."""
        self._connection.close()
        self._process.wait()
        self._shared.close()
        self._file.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        number, place = theirs.fileno(), self._file.fileno()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "spark_jobs.operators.aggregation.host",
                str(number),
                str(place),
            ],
            pass_fds=(number, place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # The answers report its errors; Rust would add a page about each panic.
            stderr=subprocess.DEVNULL,
            # No secret of the job's: only what Python itself cannot start without.
            env={
                **{name: os.environ[name] for name in _NEEDED if name in os.environ},
                "PYTHONPATH": paths,
                "RUST_BACKTRACE": "0",
            },
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self.starts += 1
        self._shared[:] = bytes(SIZE)
        try:
            self._connection.send(self._settings)
            self._received()
        except (EOFError, ConnectionError) as error:
            self._process.wait()
            msg = (
                "a script cannot be made ready: it takes too much time or memory, or its process "
                f"cannot start (exit status {self._process.returncode})"
            )
            raise BadSettings(msg) from error

    def _received(self, chunks: Chunks | None = None) -> Any:  # noqa: ANN401  # as the method says
        kind, found = self._connection.recv()
        while kind == "read" and chunks is not None:
            self._connection.send(chunks.read(*found))
            kind, found = self._connection.recv()
        if kind == "refused":
            raise BadSettings(found)
        if kind == "failed":
            raise HelperFailed(found)
        return found

    def _blamed(self) -> dict[int, str]:
        self._connection.close()
        status = self._process.wait()
        number = called(self._shared)
        if number == 0:
            msg = f"the process that scripts run in has ended (exit status {status})"
            raise HelperFailed(msg)
        step = self._settings.step
        if status == -signal.SIGPROF:
            return {number: f"took more than {step.script_timeout} ms of processor time"}
        return {number: f"needed more than {step.script_memory} MiB, or broke its process"}


_helpers: OrderedDict[tuple[int, str], Helper] = OrderedDict()
"""The helpers by process: a fork has none of its parent's."""


@atexit.register
def forget() -> None:
    """Close this process's helpers."""
    for key in [each for each in _helpers if each[0] == os.getpid()]:
        _helpers.pop(key).close()


def helper(settings: AggregationSettings) -> Helper:
    """
    Return this process's helper for a step, which compiles the scripts once.

    Raises:
        BadSettings: a script or a schema is not valid.
    """
    key = os.getpid(), repr(settings)
    found = _helpers.pop(key, None) or Helper(settings)
    _helpers[key] = found
    mine = [each for each in _helpers if each[0] == key[0]]
    for old in mine[: len(mine) - _KEPT]:
        _helpers.pop(old).close()
    return found
