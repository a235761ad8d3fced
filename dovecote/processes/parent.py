"""The parent of several processes: it starts them, starts them again, asks them, and ends them."""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request

from dovecote.process.health import HealthReport
from dovecote.process.http.asking import ask
from dovecote.process.states import State
from dovecote.processes.child import VARIABLE
from dovecote.processes.rules.keeping import (
    Member,
    Report,
    ended,
    gives_up,
    heard,
    is_due,
    started,
    told,
    whole,
)
from outbox.errors import DovecoteError

_TURN_SECONDS, _ASK_EVERY, _ASK_SECONDS = 0.2, 1.0, 3.0
_MOST = 64 << 10
_log = logging.getLogger("dovecote.processes")


class ProcessEnded(DovecoteError):
    """A process ended before it had begun its work, or did not end when it was told to."""

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


class Parent:
    """
    `count` processes that run `command`, under this one.

    One thread runs `run`; others may ask for the health, and call `stop`. A process that ends by
    itself is started again: after a second, and after up to half a minute if it ends again and
    again. A process that ends before it has begun to work ends all of them, with its status.
    """

    def __init__(self, command: Sequence[str], count: int, *, longest: float) -> None:
        """`longest` is how long a process may take to end, in seconds; after that it is killed."""
        self._command, self._longest = list(command), longest
        self._members = [Member(number, 0.0, runs=False) for number in range(count)]
        self._running: dict[int, _Running] = {}
        self._reports: dict[int, Report] = {}
        self._asked: dict[int, tuple[float, Future[HealthReport | None]]] = {}
        self._ending = False

    def stop(self) -> None:
        """
        End all processes gracefully; `run` returns after that.

        A handler of signals may call it: it takes no lock.
        """
        self._ending = True

    def run(self) -> None:
        """
        Keep the processes running until `stop`.

        Raises:
            ProcessEnded: one ended before it had begun to work, or had to be killed at the end.
        """
        with ThreadPoolExecutor(len(self._members), "ask") as askers:
            try:
                now = time.monotonic()
                for member in list(self._members):
                    self._start(Member(member.number, now))
                while not self._ending:
                    self._turn(askers)
                    time.sleep(_TURN_SECONDS)
            finally:
                self._ending = True
                late = self._end()
        if late:
            numbers = ", ".join(map(str, late))
            why = (
                f"process {numbers} did not end within {self._longest:g} s and was killed: "
                "what was not committed comes again"
            )
            raise ProcessEnded(why, 1)

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

    def ports(self) -> list[tuple[int, int]]:
        """
        Return the numbers of the processes that have begun, and the ports where they answer.

        The ones that have answered lately come first.
        """
        fresh = set(self.answering())
        running = sorted(self._running.items(), key=lambda each: (each[0] not in fresh, each[0]))
        return [(number, each.port) for number, each in running if each.port is not None]

    def _turn(self, askers: ThreadPoolExecutor) -> None:
        now = time.monotonic()
        for number, running in list(self._running.items()):
            self._hear(number, running)
            status = running.process.poll()
            if status is not None:
                self._lose(number, running, status, now)
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
        if (asked is None or asked.done()) and now - began >= _ASK_EVERY:
            self._asked[number] = (now, askers.submit(_health, port))

    def _restart(self, member: Member, now: float) -> None:
        try:
            self._start(started(member, now))
        except OSError as error:  # of memory or descriptors, which may be there later
            lost = ended(member, 1, now)
            said = f"could not be started: {error.strerror}"
            self._members[member.number] = replace(lost, ends=member.ends + 1, said=said)
            _log.error("process %d %s", member.number, said)
        else:
            _log.info("process %d is started again", member.number)

    def _start(self, member: Member) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                self._command,
                env={**os.environ, VARIABLE: f"{member.number}:{theirs.fileno()}"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
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

    def _lose(self, number: int, running: _Running, status: int, now: float) -> None:
        running.control.close()
        del self._running[number]
        member = self._members[number]
        if self._ending:
            return
        if gives_up(member):
            why = f"process {number} {told(status)} before it had begun; its log says why"
            raise ProcessEnded(why, status if status > 0 else 1)
        lost = ended(member, status, now)
        self._members[number] = lost
        _log.error(
            "process %d %s; it is started again in %.0f s", number, lost.said, lost.since - now
        )

    def _end(self) -> list[int]:
        """Tell all processes to end; return the numbers of those that had to be killed."""
        for each in self._running.values():
            each.process.terminate()
        deadline = time.monotonic() + self._longest
        late = []
        for number, each in sorted(self._running.items()):
            try:
                each.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(number)
                each.process.kill()
                each.process.wait()
            each.control.close()
        self._running.clear()
        return late


def _health(port: int) -> HealthReport | None:
    """Ask a process how it is; None: it does not answer."""
    request = Request(f"http://127.0.0.1:{port}/readyz")
    try:
        with ask(request, _ASK_SECONDS) as answer:
            body = answer.read(_MOST)
    except HTTPError as error:  # its answer while it is not ready
        with error:
            body = error.read(_MOST)
    except (OSError, HTTPException):
        return None
    try:
        found = json.loads(body)
        return HealthReport(
            bool(found["ok"]), found["role"], found["reason"], State(found["state"])
        )
    except (ValueError, KeyError, TypeError):
        return None


def again() -> list[str]:
    """Return the command that started this process, for others to run."""
    return [sys.executable, *sys.orig_argv[1:]]
