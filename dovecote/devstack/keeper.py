"""
Run one server, and end it when the process that asked for it is gone.

This is a separate program, between the asking process and the server. Its standard input is a pipe
from the asking process: first a line of JSON (`Launch`), then commands, a line each. The end of
the pipe means that the asking process is gone, for whatever reason, and ends the server, unless
the server was detached. The keeper answers each command with a line; it exits when the server and
all the server's children have.

It is the server's parent, and (on Linux) reaps the children that the server leaves behind. So it
never signals a foreign process: a process id is not used again before its parent has reaped it.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

GRACE_SECONDS = 20.0

# How often to check that the asking process is still the parent: its fork may hold the pipe open
# without knowing it.
_ORPHAN_CHECK_SECONDS = 1.0

# Processes that got SIGKILL are gone at once, unless the disk holds one of them.
_GONE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to run a server."""

    argv: list[str]
    env: dict[str, str]
    directory: str
    """Working directory, readable for the server's user."""

    log: str
    """File to which the server's output is appended."""

    user: int | None = None
    """Id of the user to run as; None: the same one."""

    group: int | None = None

    stop_signal: int = signal.SIGTERM
    """Asks the server to end gracefully."""

    grace: float = GRACE_SECONDS
    """Seconds between asking and killing."""

    remove: str | None = None
    """
    Folder to remove when the asking process is gone, and then its parent folder if that is empty.
    """

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Keeper:
    """Parent of one server: starts it, obeys commands, and waits for its end."""

    def __init__(self, launch: Launch, libc: ctypes.CDLL | None) -> None:
        self._launch = launch
        self._libc = libc
        self._parent = os.getppid()
        self._detached = False
        self._kill_at: float | None = None
        self._orphaned = False
        self._server = self._start()

    def run(self) -> None:
        """Wait for commands and for the server's end."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._answer(str(self._server.pid))
        while self._reap():
            self._kill_if_due()
            watched = [woken] if self._detached or self._orphaned else [woken, 0]
            ready, _, _ = select.select(watched, [], [], _ORPHAN_CHECK_SECONDS)
            if woken in ready and signal.SIGTERM in os.read(woken, 4096):
                self._stop()
            if 0 in ready:
                self._listen()
            if not self._detached and os.getppid() != self._parent:
                self._on_orphaned()
        if self._orphaned:
            self._remove()

    def _start(self) -> subprocess.Popen[bytes]:
        launch, keeper = self._launch, os.getpid()
        with Path(launch.log).open("ab") as log:
            return subprocess.Popen(
                launch.argv,
                env=launch.env,
                cwd=launch.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=launch.user,
                group=launch.group,
                extra_groups=None if launch.user is None else [],
                # Runs after the change of user, which would undo it.
                preexec_fn=die_with(keeper, self._libc),  # noqa: PLW1509  # no threads here
            )

    def _listen(self) -> None:
        commands = os.read(0, 4096).decode().split()
        if not commands:  # the other end of the pipe is gone
            self._on_orphaned()
        for command in commands:
            self._obey(command)

    def _obey(self, command: str) -> None:
        match command:
            case "stop":
                self._stop()
            case "kill":
                self._kill()
            case "pause":
                self._signal_all(signal.SIGSTOP)
            case "resume":
                self._signal_all(signal.SIGCONT)
            case "detach":
                self._detached = True
        self._answer(command)

    def _stop(self) -> None:
        self._signal_all(signal.SIGCONT)  # a paused server would not get the signal
        if self._server.returncode is None:
            os.kill(self._server.pid, self._launch.stop_signal)
        self._kill_at = self._kill_at or time.monotonic() + self._launch.grace

    def _kill(self) -> None:
        self._signal_all(signal.SIGSTOP)  # so that nothing forks between listing and killing
        signalled = self._signal_all(signal.SIGKILL)
        if self._libc is None:
            # Nobody but us waits for them, and a server that starts again would find them.
            psutil.wait_procs(signalled, timeout=_GONE_SECONDS)

    def _kill_if_due(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill()

    def _on_orphaned(self) -> None:
        if not self._orphaned:
            self._orphaned = True
            self._stop()

    def _signal_all(self, number: int) -> list[psutil.Process]:
        """
        Signal the server first, which then starts no more children, then its children.

        Return the children. They are listed before as well, because only on Linux does the keeper
        adopt the children of a server that has ended.
        """
        keeper = psutil.Process()
        before = keeper.children(recursive=True)
        if self._server.returncode is None:
            os.kill(self._server.pid, number)
        found = {*before, *keeper.children(recursive=True)}
        children = [each for each in found if each.pid != self._server.pid]
        for child in children:
            try:
                child.send_signal(number)
            except psutil.NoSuchProcess:
                continue  # it has ended meanwhile; go on with the others
        return children

    def _reap(self) -> bool:
        """Reap processes that have ended; return whether any of the server's is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._server.pid:
                    self._server.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def _remove(self) -> None:
        if self._launch.remove is not None:
            folder = Path(self._launch.remove)
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another server's folder is still there
                folder.parent.rmdir()

    def _answer(self, line: str) -> None:
        try:
            os.write(1, f"{line}\n".encode())
        except BrokenPipeError:
            self._on_orphaned()


def die_with(parent: int, libc: ctypes.CDLL | None) -> Callable[[], None] | None:
    """Return a function that makes a child of `parent` die with it, even after SIGKILL."""
    if libc is None:
        return None

    def run() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            os.kill(os.getpid(), signal.SIGKILL)

    return run


def main() -> None:
    """Read a `Launch` from standard input, and keep its server."""
    for number in (signal.SIGINT, signal.SIGHUP):
        # Ctrl-C is for the asking process, which then decides about the server.
        signal.signal(number, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if libc is not None:
        # Adopt processes that the server leaves behind: we then wait for them, and nobody else has
        # to.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # unbuffered: `run` reads the bytes after the line
        if not byte:
            return
        line += byte
    Keeper(Launch(**json.loads(line)), libc).run()


if __name__ == "__main__":
    main()
