"""Run the pipeline's programs as child processes, each with a log file."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from outbox.errors import DovecoteError

_TAIL_LINES = 15


class ChildFailed(DovecoteError):
    """A program of the pipeline ended, or failed to end, against the plan."""


class Child:
    """
    One program, which dies with this process.

    `environment` is added to this process's: secrets belong there, because `ps` does not show it.
    Start children from the main thread: on Linux a child dies with the thread that started it.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dovecote.demo.tether", str(os.getpid()), *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # Ctrl-C is for this process, which then ends its children in order. They share its
                # session, because Linux divides the processor between sessions first: with their
                # own sessions, four writers would have four shares against the Spark job's one.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status; negative: the signal that ended it; None: it is running."""
        return self._process.poll()

    def pause(self) -> None:
        """Stop it in place; `resume` or `kill` follows."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self, *, within: float) -> None:
        """
        Ask it to end, and wait until it has.

        Raises:
            ChildFailed: it ended with an error, or not in time.
        """
        self._process.terminate()
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired as error:
            self.kill()
            msg = f"{self.name} did not end within {within:g} s of SIGTERM. {self.tail()}"
            raise ChildFailed(msg) from error
        if self.status != 0:
            raise ChildFailed(self.said())

    def end(self) -> None:
        """End it in any way, if it is running."""
        if self.status is None:
            self.kill()

    def said(self) -> str:
        """Return how it ended, with the end of its log."""
        status = self.status
        how = (
            f"was ended by {signal.Signals(-status).name}"
            if status is not None and status < 0
            else f"ended with exit status {status}"
        )
        return f"{self.name} {how}. {self.tail()}"

    def tail(self) -> str:
        """Return the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"The end of its log, {self.log}:", *(f"  {line}" for line in lines)])


def dovecote(*arguments: str) -> list[str]:
    """Return the command line of `dovecote` with this Python."""
    return [sys.executable, "-c", "from dovecote.cli.main import main; main()", *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """Return the command line of `python -m name` with this Python."""
    return [sys.executable, "-m", name, *arguments]
