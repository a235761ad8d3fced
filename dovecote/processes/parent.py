"""The parent of several processes: it starts them, starts them again, asks them, and ends them."""

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import BinaryIO, cast
from urllib.error import HTTPError
from urllib.request import Request

from dovecote.process.health import HealthReport
from dovecote.process.http.asking import ask, body_of, json_of
from dovecote.process.logs import share_log
from dovecote.process.states import State
from dovecote.processes.child import VARIABLE, Told
from dovecote.processes.rules.keeping import (
    FRESH,
    PATIENCE,
    Member,
    Report,
    asked_first,
    ended,
    fault,
    gives_up,
    heard,
    is_due,
    silence,
    started,
    told,
    whole,
)
from outbox.errors import DovecoteError

_TURN_SECONDS, _ASK_EVERY, _ASK_SECONDS = 0.2, 1.0, 3.0
# A service manager tells all processes of a unit to end, in any order.
_HEARS_LAST_SECONDS = 2.0
_MOST = 64 << 10
# macOS has no `waitid`, and no containers of its own.
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT if hasattr(os, "waitid") else 0
_log = logging.getLogger("dovecote.processes")


class ProcessEnded(DovecoteError):
    """A process ended before it had begun its work, or not well when it was told to end."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status
        """The exit status of the parent."""


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    control: socket.socket
    heard: bytes = b""
    port: int | None = None
    silent: float = 0.0
    """For how long it has not answered, in seconds."""
    killed: str = ""
    """Why the parent has killed it."""


class Parent:
    """
    `count` processes that run `command`, under this one.

    One thread runs `run`; others may ask for the health, and call `stop`. A process that ends by
    itself is started again: after a second, and after up to half a minute if it ends again and
    again. So is one that does not answer any more: it is killed first. A process that ends before
    it has begun to work ends all of them, with its status.

    Each process has a session of its own: a key in the terminal, or the end of the terminal, ends
    the parent, which ends them in order. A process takes with it what it has started.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        longest: float,
        patience: float = PATIENCE,
        alone: bool = False,
    ) -> None:
        """
        Take the command that each process runs.

        `longest` is how long a process may take to end, and `patience` how long it may be silent,
        both in seconds; after that it is killed. `alone`: nothing else starts processes here, so
        that any other child is an orphan.
        """
        self._alone = alone and hasattr(os, "waitid")
        self._turns = _file()
        share_log(self._turns.fileno())
        self._command, self._longest, self._patience = list(command), longest, patience
        self.secret = secrets.token_hex(16)
        """The word that this parent and its processes alone know."""
        self._members = [Member(number, 0.0, runs=False) for number in range(count)]
        self._running: dict[int, _Running] = {}
        self._reports: dict[int, Report] = {}
        self._asked: dict[int, tuple[float, Future[HealthReport | None]]] = {}
        self._ending = False
        self._turned = time.monotonic()

    def stop(self) -> None:
        """End all processes gracefully; `run` returns after that."""
        self._ending = True

    def run(self) -> None:
        """
        Keep the processes running until `stop`.

        Raises:
            ProcessEnded: one could not be started, ended before it had begun to work, or did not
                end well when it was told to.
        """
        with ThreadPoolExecutor(len(self._members), "ask") as askers:
            try:
                self._begin_all(askers)
                self._turned = now = time.monotonic()
                for member in list(self._members):
                    self._begin(Member(member.number, now))
                while not self._ending:
                    self._turn(askers)
                    time.sleep(_TURN_SECONDS)
            finally:
                self._ending = True
                faults = self._end()
        if faults:
            why = "; ".join(why for why, _ in faults)
            status = max(0, *(status for _, status in faults)) or 1
            msg = f"{why}: what was not committed comes again"
            raise ProcessEnded(msg, status)

    def ready(self) -> HealthReport:
        """Return the health of all as one."""
        members = list(self._members)
        reports = [self._reports.get(each.number) for each in members]
        return whole(members, reports, time.monotonic(), ending=self._ending)

    def members(self) -> list[Member]:
        """Return what is known of each process."""
        return list(self._members)

    def answering(self) -> list[int]:
        """Return the numbers of the processes that run and have answered lately."""
        now, members, reports = time.monotonic(), list(self._members), dict(self._reports)
        return [
            each.number
            for each in members
            if heard(each, reports.get(each.number), now) is not None
        ]

    def is_silent(self, number: int) -> bool:
        """Return whether a process has ended, or has not answered for 10 seconds."""
        running = self._running.get(number)
        return running is None or running.silent >= FRESH

    def ports(self) -> list[tuple[int, int]]:
        """
        Return the numbers of the processes that have begun, and the ports where they answer.

        The order is that of `asked_first`.
        """
        now, members, reports = time.monotonic(), list(self._members), dict(self._reports)

        def place(of: tuple[int, _Running]) -> tuple[bool, bool, int]:
            number, running = of
            last = heard(members[number], reports.get(number), now)
            return asked_first(number, running.silent, last)

        running = sorted(self._running.copy().items(), key=place)
        return [(number, each.port) for number, each in running if each.port is not None]

    def _turn(self, askers: ThreadPoolExecutor) -> None:
        now = time.monotonic()
        passed, self._turned = now - self._turned, now
        for number, running in list(self._running.items()):
            self._hear(number, running)
            status = running.process.poll()
            if status is None:
                self._wait_for(number, running, passed)
            else:
                self._lose(number, running, status, now)
        if self._ending:
            return
        self._bury()
        for member in list(self._members):
            if is_due(member, now):
                self._restart(member, now)
        for number, port in self.ports():
            self._ask(number, port, askers, now)

    def _ask(self, number: int, port: int, askers: ThreadPoolExecutor, now: float) -> None:
        """Ask a process once a second, and wait for no answer: it may be a stopped one's."""
        began, asked = self._asked.get(number, (-_ASK_EVERY, None))
        if asked is not None and asked.done() and (report := asked.result()) is not None:
            self._reports[number] = (began, report)
            if began >= self._members[number].since:  # not from before it was started again
                self._running[number].silent = 0.0
        if (asked is None or asked.done()) and now - began >= _ASK_EVERY:
            self._asked[number] = (now, askers.submit(_health, port))

    def _restart(self, member: Member, now: float) -> None:
        try:
            self._start(started(member, now))
        except OSError as error:  # of memory or descriptors, which may be there later
            said = f"could not be started: {error.strerror}"
            lost = ended(member, said, now)
            self._members[member.number] = replace(lost, ends=member.ends + 1)
            _log.error("process %d %s", member.number, said)
        else:
            _log.info("process %d is started again", member.number)

    def _bury(self) -> None:
        """
        Take note of the ends of orphans: the first process of a container gets all of them.

        `_turn` has taken note of the ends of our own; one that comes in between waits.
        """
        ours = {running.process.pid for running in self._running.values()}
        with contextlib.suppress(ChildProcessError):  # there is none at all
            while self._alone and (found := os.waitid(os.P_ALL, 0, _PEEK)) is not None:
                if found.si_pid in ours:
                    break
                os.waitpid(found.si_pid, 0)

    def _begin_all(self, askers: ThreadPoolExecutor) -> None:
        """Begin the threads that ask: there may be no room for one when it is needed."""
        together = threading.Barrier(len(self._members))
        with self._refused("a thread for each"):
            try:
                for _ in self._members:
                    askers.submit(together.wait)
            except BaseException:
                together.abort()
                raise

    def _begin(self, member: Member) -> None:
        with self._refused(f"process {member.number}"):
            self._start(member)

    @contextlib.contextmanager
    def _refused(self, what: str) -> Iterator[None]:
        """Say what to do if the machine refuses something."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            why = (
                f"{what} of {len(self._members)} could not be started "
                f"({getattr(error, 'strerror', None) or error}): set fewer processes, or raise "
                "the limit of processes, descriptors or memory"
            )
            raise ProcessEnded(why, 1) from error

    def _start(self, member: Member) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            told = Told(member.number, theirs.fileno(), self._turns.fileno(), self.secret)
            process = subprocess.Popen(
                self._command,
                env={**os.environ, VARIABLE: told.text()},
                pass_fds=[told.control, told.turns],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)  # noqa: FBT003  # the function has no name for it
        self._running[member.number] = _Running(process, ours)
        self._members[member.number] = member

    def _hear(self, number: int, running: _Running) -> None:
        """Read what the process has said: once, that it works, and where it answers."""
        try:
            running.heard += running.control.recv(4096)
        except (BlockingIOError, ConnectionError):
            return
        line, end, _ = running.heard.partition(b"\n")
        member = self._members[number]
        if end and not member.served:
            running.port = json.loads(line)["port"]
            self._members[number] = replace(member, served=True)

    def _wait_for(self, number: int, running: _Running, passed: float) -> None:
        """Kill a process that has not answered for long: it would be idle for ever."""
        member = self._members[number]
        if member.served and running.port is None:
            return  # it answers nobody
        running.silent = silence(running.silent, passed)
        if running.silent >= self._patience and not running.killed:
            did = "answer" if member.served else "begin"
            running.killed = f"did not {did} for {self._patience:g} s and was killed"
            _log.error("process %d %s", number, running.killed)
            running.process.kill()

    def _lose(self, number: int, running: _Running, status: int, now: float) -> None:
        member = self._members[number]
        if gives_up(member) and status in {-signal.SIGTERM, -signal.SIGINT}:
            time.sleep(_HEARS_LAST_SECONDS)  # perhaps all are told to end
        if self._ending:
            return  # `_end` judges how it has ended
        running.control.close()
        _end_rest(running.process)
        del self._running[number]
        how = running.killed or told(status)
        if gives_up(member):
            why = f"process {number} {how} before it had begun; its log says why"
            raise ProcessEnded(why, status if status > 0 else 1)
        lost = ended(member, how, now)
        self._members[number] = lost
        _log.error(
            "process %d %s; it is started again in %.0f s", number, lost.said, lost.since - now
        )

    def _end(self) -> list[tuple[str, int]]:
        """Tell all processes to end; return what is wrong with how some did, and their status."""
        for each in self._running.values():
            each.process.terminate()
        deadline = time.monotonic() + self._longest
        faults = []
        for number, each in sorted(self._running.items()):
            try:
                status = each.process.wait(max(0.0, deadline - time.monotonic()))
                why = fault(self._members[number], status)
            except subprocess.TimeoutExpired:
                each.process.kill()
                status = each.process.wait()
                why = f"process {number} did not end within {self._longest:g} s and was killed"
            if why:
                faults.append((why, status))
            _end_rest(each.process)
            each.control.close()
        self._running.clear()
        return faults


def _end_rest(process: subprocess.Popen[bytes]) -> None:
    """End what a process that has ended has left behind in its group, such as a pool's workers."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # mostly there is nothing
        os.killpg(process.pid, signal.SIGTERM)


def _health(port: int) -> HealthReport | None:
    """Ask a process how it is; None: it does not answer."""
    request = Request(f"http://127.0.0.1:{port}/readyz")
    try:
        body = ask(request, _ASK_SECONDS, _MOST)
    except HTTPError as error:  # its answer while it is not ready
        body = body_of(error, _MOST)
    except OSError:
        return None
    try:
        found = json_of(body)
        return HealthReport(
            bool(found["ok"]), found["role"], found["reason"], State(found["state"])
        )
    except (ValueError, KeyError, TypeError):
        return None


def _file() -> BinaryIO:
    """Return a file without a name, which exists as long as it is open somewhere."""
    if hasattr(os, "memfd_create"):  # a container may have no folder to write to
        return os.fdopen(os.memfd_create("turns"), "wb")
    return cast("BinaryIO", tempfile.TemporaryFile())


def again() -> list[str]:
    """Return the command that started this process, for others to run."""
    return [sys.executable, *sys.orig_argv[1:]]
