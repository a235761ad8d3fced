"""A server process that keeps its data and its address over stops, kills and pauses."""

import select
import shutil
import subprocess
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from dovecote.devstack import keeper
from dovecote.devstack.errors import ServerFailed, ServerNotRunning
from dovecote.devstack.keeper import Launch
from dovecote.devstack.places import User, kept_port
from dovecote.devstack.processes import Process

_TAIL_LINES = 25
_PROBE_SECONDS = 0.02
_ANSWER_SECONDS = 60.0
# More time than the keeper's grace, for the kernel to take a large process apart.
_MARGIN_SECONDS = 20.0


class Server(ABC):
    """
    One server of the stack, run by a keeper that ends it when this process is gone.

    Every method that changes the state returns when the change is complete: after `start`,
    `resume` and `restart` the server answers; after `stop` and `kill` none of its processes is
    left. The methods are not thread-safe. A temporary `directory` is removed at the end of the
    `with` block, or when this process is gone.
    """

    name: str
    start_seconds = 120.0
    """How long a start may take."""

    def __init__(self, directory: Path, *, temporary: bool = False) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        self._temporary = temporary
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._paused = False

    def _keep_port(self, name: str) -> int:
        """Return the last port, or a new one, and reserve it while the server is down."""
        port, held = kept_port(self.directory / name)
        weakref.finalize(self, held.close)
        return port

    @property
    def pid(self) -> int:
        """
        The server's process id.

        Raises:
            ServerNotRunning: it has none.
        """
        if self._pid is None or not self.running:
            msg = f"{self.name} is not running; call start() first"
            raise ServerNotRunning(msg)
        return self._pid

    @property
    def keeper_pid(self) -> int:
        """The process id of the server's keeper, which ends the server when it is terminated."""
        if self._keeper is None:
            msg = f"{self.name} is not running; call start() first"
            raise ServerNotRunning(msg)
        return self._keeper.pid

    @property
    def running(self) -> bool:
        """Whether the server has a process, paused or not."""
        return self._kept and self._pid is not None and Process.of(self._pid) is not None

    def start(self) -> None:
        """
        Start the server, on its last data and address, and wait until it answers.

        Raises:
            ServerFailed: it ended, or did not answer in time; the message quotes its log.
        """
        if self.running:
            return
        self._end("kill")  # left over from another process's kill
        started = self.log.stat().st_size if self.log.exists() else 0
        launch = replace(
            self._prepare(),
            remove=str(self.directory) if self._temporary else None,
        )
        with self.log.open("ab") as log:
            # `-P`: the keeper's own folder holds modules with the names of libraries.
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", keeper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                bufsize=0,
                start_new_session=True,
            )
        try:
            self._write(launch.to_json())
            self._pid = self._read_pid(started)
            self._wait_until_ready(time.monotonic() + self.start_seconds, started)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server as its operator would; its data is on disk afterwards."""
        self._end("stop")

    def kill(self) -> None:
        """SIGKILL the whole server, as a crash of the machine would, without any cleanup."""
        self._end("kill")

    def restart(self) -> None:
        """Stop, then start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP the whole server: connections stay open and nothing answers."""
        _ = self.pid
        self._order("pause")
        self._paused = True

    def resume(self) -> None:
        """Continue a paused server, and wait until it answers."""
        _ = self.pid
        self._order("resume")
        self._paused = False
        self._wait_until_ready(time.monotonic() + self.start_seconds, self.log.stat().st_size)

    def detach(self) -> None:
        """Let the server outlive this process, and forget it here."""
        if self._keeper is not None:
            self._order("detach")
            # The standard library would warn that the keeper still runs, which is intended.
            self._keeper.returncode = 0
        self._forget()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _prepare(self) -> Launch:
        """Make the data on the first start; return the server's `Launch`."""

    @abstractmethod
    def _probe(self) -> str | None:
        """Return why the server does not answer, or None if it does."""

    @property
    def _kept(self) -> bool:
        """Whether the keeper runs, and any process of the server."""
        return self._keeper is not None and self._keeper.poll() is None

    def _end(self, command: str) -> None:
        if self._keeper is None:
            return
        if self._kept:
            self._order(command)
            try:
                self._keeper.wait(keeper.GRACE_SECONDS + _MARGIN_SECONDS)
            except subprocess.TimeoutExpired as error:
                msg = f"{self.name} (pid {self._pid}) does not end. {self._tail(0)}"
                raise ServerFailed(msg) from error
        self._forget()

    def _forget(self) -> None:
        if self._keeper is not None:
            for pipe in (self._keeper.stdin, self._keeper.stdout):
                if pipe is not None:
                    pipe.close()
        self._keeper, self._pid, self._paused = None, None, False

    def _read_pid(self, log_from: int) -> int:
        try:
            return int(self._read())
        except EOFError:
            msg = f"{self.name} could not be run. {self._tail(log_from)}"
            raise ServerFailed(msg) from None

    def _order(self, command: str) -> None:
        try:
            self._write(command)
            self._read()
        except (BrokenPipeError, EOFError):
            return  # the keeper ended with its server: there is nothing left to end

    def _write(self, line: str) -> None:
        if self._keeper is None or self._keeper.stdin is None:
            raise BrokenPipeError
        self._keeper.stdin.write(f"{line}\n".encode())

    def _read(self) -> str:
        """Return the keeper's next line; raise EOFError once it has ended."""
        if self._keeper is None or self._keeper.stdout is None:
            raise EOFError
        deadline = time.monotonic() + _ANSWER_SECONDS
        line = b""
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._keeper.stdout], [], [], left)[0]:
                msg = f"the keeper of {self.name} (pid {self._keeper.pid}) does not answer"
                raise ServerFailed(msg)
            byte = self._keeper.stdout.read(1)
            if not byte:
                raise EOFError
            line += byte
        return line.decode().strip()

    def _wait_until_ready(self, deadline: float, log_from: int) -> None:
        while self._keeper is not None and self._keeper.stdout is not None:
            # The keeper sends only answers: its pipe becomes readable when it has ended.
            if select.select([self._keeper.stdout], [], [], _PROBE_SECONDS)[0]:
                msg = f"{self.name} ended while it was starting. {self._tail(log_from)}"
                raise ServerFailed(msg)
            reason = self._probe()
            if reason is None:
                return
            if time.monotonic() > deadline:
                msg = f"{self.name} does not answer ({reason}). {self._tail(log_from)}"
                raise ServerFailed(msg)

    def _tail(self, log_from: int) -> str:
        """Return the end of what the server has logged since its log had `log_from` bytes."""
        with self.log.open("rb") as log:
            log.seek(log_from)
            lines = log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"The end of its log, {self.log}:", *(f"  {line}" for line in lines)])


def run_to_end(
    command: Sequence[str],
    *,
    failure: str,
    folder: Path,
    seconds: float,
    user: User | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """
    Run a program in `folder`, as `user` if one is given.

    Raises:
        ServerFailed: it failed, or is not done in time; the message is `failure`, with the
            program's output.
    """
    try:
        made = subprocess.run(
            command,
            env=env,
            cwd=folder,
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        # Python leaves it as bytes here, whatever was asked for.
        said = bytes(error.stdout or b"").decode(errors="replace")
        msg = f"{failure} (not done within {seconds:g} s):\n{said}"
        raise ServerFailed(msg) from None
    if made.returncode != 0:
        msg = f"{failure} (exit status {made.returncode}):\n{made.stdout}"
        raise ServerFailed(msg)
