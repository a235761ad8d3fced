"""Hold an operator's command before any of its steps, as if its process were stopped there."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import psycopg
import pytest

from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.publisher import IdempotentPublisher, TransactionalPublisher
from tests.support.waiting import patient, until

_KAFKA = {
    TransactionalPublisher: ("open", "mark", "publish"),
    IdempotentPublisher: ("open", "mark", "publish"),
    ProgressTopic: ("ensure", "peek", "read"),
}


class Stop(NamedTuple):
    """Before the first step of a kind, once a part of the command was begun this many times …"""

    part: str
    times: int
    step: str
    at: int = -1
    """… or before the step of this number."""


class Stops:
    """
    Runs one command at a time, in a thread of this process.

    A step is any request to a server. While the command is held, the threads that it has started
    also stop before their next step; the test itself goes on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._command: threading.Thread | None = None
        self._threads: set[threading.Thread] = set()
        self._hold_at = Stop("", 0, "")
        self._seen = 0
        self._held, self._goes_on = threading.Event(), threading.Event()
        self.steps: list[str] = []
        """The command's steps so far; the last one is where it is held."""
        for kind, names in _KAFKA.items():
            for name in names:
                self._watch(monkeypatch, kind, name)
        self._watch(monkeypatch, psycopg.Cursor, "execute")
        start = threading.Thread.start

        def starting(this: threading.Thread) -> None:
            if threading.current_thread() in self._threads:
                self._threads.add(this)
            start(this)

        monkeypatch.setattr(threading.Thread, "start", starting)
        connect_gen = psycopg.Connection._connect_gen.__func__  # type: ignore[attr-defined]  # it is one of the class

        def connecting(kind: type[psycopg.Connection[Any]], *args: Any, **given: Any) -> Any:
            self._step("connect ")
            return connect_gen(kind, *args, **given)

        monkeypatch.setattr(psycopg.Connection, "_connect_gen", classmethod(connecting))

    def _watch(self, monkeypatch: pytest.MonkeyPatch, kind: type | ModuleType, name: str) -> None:
        method = getattr(kind, name)

        def watched(*args: Any, **given: Any) -> Any:
            self._step(f"{name} {args[1]}" if name == "execute" else f"{name} ")
            return method(*args, **given)

        monkeypatch.setattr(kind, name, watched)

    def _step(self, label: str) -> None:
        this = threading.current_thread()
        if this not in self._threads:
            return
        if this is self._command:
            self.steps.append(label)
            part, times, step, at = self._hold_at
            self._seen += label == f"{part} "
            is_there = self._seen >= times and label.startswith(f"{step} ")
            if is_there or len(self.steps) - 1 == at:
                self._held.set()
        if self._held.is_set():
            self._goes_on.wait(patient(120))

    @contextmanager
    def running(self, command: Callable[[], object], hold_at: Stop) -> Iterator[Future[object]]:
        """Run `command` up to a step, or to its end if it does not reach the step."""
        self.steps.clear()
        self._seen = 0
        self._held.clear()
        self._goes_on.clear()
        self._hold_at = hold_at

        def run() -> object:
            self._command = threading.current_thread()
            self._threads = {self._command}
            return command()

        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(run)
            try:
                until(lambda: self._held.is_set() or task.done(), within=60, what="the step")
                yield task
            finally:
                self._goes_on.set()
                task.exception(patient(120))
                self._threads.clear()

    def watch(self, module: ModuleType, *names: str) -> None:
        """Count each call of these functions as a step as well."""
        for name in names:
            self._watch(self._monkeypatch, module, name)

    def wake(self, task: Future[object]) -> BaseException | None:
        """Let the command go on, and return the error with which it ends."""
        self._goes_on.set()
        return task.exception(patient(120))


def end_sessions(dsn: str, *, besides: psycopg.Connection | None = None) -> None:
    """End all sessions of a database except our own, and one of the test."""
    spared = besides.info.backend_pid if besides else 0
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)",
            [spared],
        )
