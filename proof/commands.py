"""Run operators' commands to their end; or stop them, cut them off, run a rival, and wake them."""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.demo.children import Child, dovecote
from outbox.errors import DovecoteError
from proof.journal import Journal
from proof.proxy import Proxy

_RUN_SECONDS = 120.0
_CONNECT_SECONDS = 20.0
_STACKS = {"PYTHONFAULTHANDLER": "1"}


class Failed(DovecoteError):
    """A command ended with a traceback, or did not end."""


class Commands:
    """Runs `dovecote` like an operator."""

    def __init__(self, directory: Path, journal: Journal) -> None:
        self._directory, self._journal = directory, journal
        self._number = 0
        self._rest = threading.Event()  # never set, only waited for

    def run(
        self,
        dsn: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        must_succeed: bool = False,
    ) -> str:
        """
        Run a command to its end; return its output, or its refusal.

        Raises:
            Failed: it ended with a traceback, or not in time, or without success when it had to
                succeed.
        """
        with subprocess.Popen(
            dovecote(*arguments),
            env={**os.environ, **_STACKS, **_connected(dsn), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                out, error = process.communicate(timeout=_RUN_SECONDS)
            except subprocess.TimeoutExpired:
                # The signal makes it print where each of its threads is, and end.
                process.send_signal(signal.SIGABRT)
                _, error = process.communicate()
                msg = (
                    f"`dovecote {' '.join(arguments)}` did not end in {_RUN_SECONDS:g} s:\n{error}"
                )
                raise Failed(msg) from None
            except BaseException:
                process.kill()
                raise
        succeeded = process.returncode == 0
        told = out if succeeded else error
        self._journal.note(f"{_named(arguments)}: exit status {process.returncode}: {_end(told)}")
        _check(arguments, error)
        if must_succeed and not succeeded:
            msg = f"`dovecote {' '.join(arguments)}` did not do what it was asked for: {told}"
            raise Failed(msg)
        return told

    def wake(
        self,
        server: str,
        arguments: Sequence[str],
        rival: Callable[[], None],
        chance: random.Random,
    ) -> bool:
        """
        Stop a command at some moment, end its sessions, run `rival`, and wake the command up.

        Return whether it was stopped before its end. `server` is the address without a balancer.

        Raises:
            Failed: it ended with a traceback, or never.
        """
        address = conninfo_to_dict(server)
        self._number += 1
        log = self._directory / f"command-{self._number}.log"
        with Proxy((str(address["host"]), int(address["port"] or 5432))) as proxy:
            dsn = make_conninfo(server, host="127.0.0.1", port=proxy.port)
            environment = _connected(dsn)
            child = Child("command", dovecote(*arguments), log, environment=environment)
            try:
                if proxy.connected.wait(_CONNECT_SECONDS):
                    self._rest.wait(chance.random() * chance.choice([0.02, 0.1, 0.5]))
                if child.status is not None:
                    return False
                child.pause()
                self._journal.note(f"{_named(arguments)} stopped")
                ended = _end_sessions(server, proxy.ports())
                proxy.cut()
                rival()
                child.resume()
                self._journal.note(f"{_named(arguments)} woken, {ended} sessions ended")
                self._wait_for(child, arguments)
            finally:
                child.end()
        _check(arguments, log.read_text(errors="replace"))
        return ended > 0

    def _wait_for(self, child: Child, arguments: Sequence[str]) -> None:
        deadline = time.monotonic() + _RUN_SECONDS
        while child.status is None:
            if time.monotonic() > deadline:
                msg = f"`dovecote {' '.join(arguments)}`, woken, does not end. {child.tail()}"
                raise Failed(msg)
            self._rest.wait(0.02)
        self._journal.note(
            f"{_named(arguments)}, woken: exit status {child.status}: {_end(child.tail())}"
        )


def _connected(dsn: str) -> dict[str, str]:
    return {"DOVECOTE_RELAY_DSN": dsn, "DOVECOTE_DSN": dsn}


def _end_sessions(server: str, ports: Sequence[int]) -> int:
    with psycopg.connect(server, autocommit=True, connect_timeout=10) as conn:
        row = conn.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE client_port = ANY(%s)",
            [list(ports)],
        ).fetchone()
    return int(row[0]) if row else 0


def _end(told: str) -> str:
    return told.strip().splitlines()[-1].strip()[:200] if told.strip() else ""


def _named(arguments: Sequence[str]) -> str:
    """Return the words that name a command, without its options."""
    return f"`dovecote {' '.join(arguments[:2])}`"


def _check(arguments: Sequence[str], said: str) -> None:
    if "Traceback" in said:
        msg = f"`dovecote {' '.join(arguments)}` ended with a traceback:\n{said[-3000:]}"
        raise Failed(msg)
