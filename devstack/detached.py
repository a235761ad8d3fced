"""
Servers that outlive the command that started them, and are found again by the next one.

A state file says which processes they are. Only these are ever ended: a process that was given
the id of one of them later is told apart by when it began.
"""

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from devstack.errors import ServerFailed, StackError
from devstack.places import is_reachable, temporary_directory
from devstack.postgres import server_user
from devstack.processes import Process
from devstack.progress import Progress
from devstack.server import Server
from devstack.stack import Stack, start_together

DEFAULT_HOME = Path(".dovecote/stack")

_DOWN_SECONDS = 60.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A server that was started: where it is reached, and its processes."""

    address: str
    server: Process
    keeper: Process

    @property
    def running(self) -> bool:
        return self.server.running


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the state file holds."""

    directory: Path
    """Where the servers keep their data."""

    members: Mapping[str, Member] = field(default_factory=dict)
    """By the server's name."""

    @classmethod
    def read(cls, home: Path) -> Self | None:
        """
        Return the state kept in `home`; None if nothing was ever started there.

        Raises:
            StackError: the file is not one of ours.
        """
        file = home / "state.json"
        try:
            held = json.loads(file.read_text())
            members = {
                name: Member(
                    address=member["address"],
                    server=Process(**member["server"]),
                    keeper=Process(**member["keeper"]),
                )
                for name, member in held["members"].items()
            }
            return cls(directory=Path(held["directory"]), members=members)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{file} does not hold the state of a stack ({error!r}); move it out of the way"
            raise StackError(msg) from error

    def write(self, home: Path) -> None:
        """Keep the state in `home`, readable for its owner: it holds a password."""
        held = {
            "directory": str(self.directory),
            "members": {name: asdict(member) for name, member in self.members.items()},
        }
        new = home / f"state.{secrets.token_hex(4)}"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps(held, indent=2))
        new.replace(home / "state.json")

    @property
    def dsn(self) -> str:
        return self.members["postgres"].address

    @property
    def bootstrap(self) -> str:
        return self.members["kafka"].address

    @property
    def running(self) -> bool:
        """Whether both servers run."""
        return len(self.members) > 1 and all(one.running for one in self.members.values())


def up(home: Path | None, progress: Progress | None = None) -> tuple[State, bool]:
    """
    Start what does not run of the stack of `home`; return its state, and whether it was all there.

    Without `home`, the current directory's: its data then lies elsewhere if the user that runs
    Postgres cannot come here.

    Raises:
        StackError: a server did not start.
    """
    place = (home or DEFAULT_HOME).absolute()
    place.mkdir(parents=True, exist_ok=True)
    with _lock(place):
        state = State.read(place)
        if state is not None and state.running:
            return state, True
        if home is not None:
            directory = place
        elif state is not None and state.directory.is_dir():
            directory = state.directory
        else:
            directory = default_directory(place)
        return _start_missing(place, directory, state, progress), False


def down(home: Path | None) -> bool:
    """
    End the servers that `up` started for `home`; return whether any ran.

    Raises:
        ServerFailed: one did not end.
    """
    place = (home or DEFAULT_HOME).absolute()
    if not place.is_dir():
        return False
    with _lock(place):
        state = State.read(place)
        running = [m for m in state.members.values() if m.running] if state else []
        for member in running:
            member.keeper.terminate()
        deadline = time.monotonic() + _DOWN_SECONDS
        while left := [m for m in running if m.running or m.keeper.running]:
            if time.monotonic() > deadline:
                pids = ", ".join(str(member.server.pid) for member in left)
                msg = f"servers that were asked to end still run after {_DOWN_SECONDS} s: {pids}"
                raise ServerFailed(msg)
            threading.Event().wait(_POLL_SECONDS)
    return bool(running)


def status(home: Path | None) -> State | None:
    """Return the state of the stack of `home`; None if it was never started."""
    return State.read((home or DEFAULT_HOME).absolute())


def default_directory(place: Path) -> Path:
    """Return `place`, or a new temporary folder if the user that runs Postgres cannot go there."""
    user = server_user()
    return place if is_reachable(place, user) else temporary_directory(user)


def _start_missing(
    place: Path, directory: Path, state: State | None, progress: Progress | None
) -> State:
    stack = Stack(directory, progress=progress)
    members = {name: m for name, m in state.members.items() if m.running} if state else {}
    servers: dict[str, Server] = {"postgres": stack.postgres, "kafka": stack.kafka}
    missing = {name: server for name, server in servers.items() if name not in members}
    start_together(list(missing.values()))
    addresses = {"postgres": lambda: stack.postgres.dsn, "kafka": lambda: stack.kafka.bootstrap}
    for name, server in missing.items():
        members[name] = Member(
            address=addresses[name](),
            server=_process(server.pid),
            keeper=_process(server.keeper_pid),
        )
    after = State(directory=directory, members=members)
    after.write(place)
    # Only now: had we been killed before, they would have ended with us, and not run unknown.
    for server in missing.values():
        server.detach()
    return after


def _process(pid: int) -> Process:
    process = Process.of(pid)
    if process is None:
        msg = f"the process {pid} of a server ended right after its start"
        raise ServerFailed(msg)
    return process


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Let one command at a time change the stack of `place`."""
    with (place / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
