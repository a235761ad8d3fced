"""
Servers that outlive the command that started them, and that the next one finds again.

A state file names their processes. Only these are ever ended: if another process got one of their
ids later, its start time gives it away.
"""

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

from psycopg.conninfo import conninfo_to_dict

from dovecote.devstack.errors import ServerFailed, StackError, explained
from dovecote.devstack.kafka.cluster import Cluster
from dovecote.devstack.places import is_reachable, temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.processes import Process
from dovecote.devstack.progress import Progress
from dovecote.devstack.server import Server
from dovecote.devstack.spark.s3 import S3Server
from dovecote.devstack.spark.standalone import SparkCluster
from dovecote.devstack.stack import Stack, start_together
from dovecote.devstack.versions import KAFKA, POSTGRES

DEFAULT_HOME = Path(".dovecote/stack")

_DOWN_SECONDS = 60.0
_POLL_SECONDS = 0.02

_REPLICAS = 3
GATES = "gates"
"""The name of the gates among the members."""
SPARK, S3_SERVER = "spark", "s3"
"""Parts that a stack has only if it is asked for: a cluster of Spark, and an S3."""
MASTER, _WORKER = "spark-master", "spark-worker-"
BUCKET = "checkpoints"
"""The bucket of the stack's S3."""
_OF = {SPARK: MASTER, S3_SERVER: S3_SERVER}
# Each worker may run two executors of one core, or one of two.
_CORES = 2
_NONE = Process(0, "")

Servers: TypeAlias = dict[str, tuple[Server, Callable[[], str]]]
"""The servers of a stack by their names, each with a function for its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A server that was started: its address, and its processes."""

    address: str
    server: Process
    keeper: Process
    version: str = ""
    """The server's version, as `dovecote.devstack.versions` names it."""

    @property
    def running(self) -> bool:
        return self.server.running


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """The contents of the state file."""

    directory: Path
    """Where the servers keep their data."""

    members: Mapping[str, Member] = field(default_factory=dict)
    """Members by the server's name."""

    @classmethod
    def read(cls, home: Path) -> Self | None:
        """
        Return the state stored in `home`; None if nothing was ever started there.

        A copy of another stack's home has none of its servers, and no data but what was copied.

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
                    version=member.get("version", ""),
                )
                for name, member in held["members"].items()
            }
            directory = Path(held["directory"])
            other = Path(held.get("home", directory)) / "state.json"
            if other.exists() and not other.samefile(file):
                if directory != other.parent:
                    return None
                directory = home
                members = {n: replace(m, server=_NONE, keeper=_NONE) for n, m in members.items()}
            return cls(directory=directory, members=members)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"{file} does not hold the state of a stack ({error!r}); move it out of the way"
            raise StackError(msg) from error

    def write(self, home: Path) -> None:
        """Store the state in `home`, readable for its owner only: it holds a password."""
        held = {
            "home": str(home),
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
        return ",".join(
            member.address for name, member in self.members.items() if name.startswith("kafka")
        )

    def variables(self) -> dict[str, str]:
        """Return the addresses as environment variables, of libpq and of our settings."""
        of_libpq = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER"}
        of_libpq |= {"password": "PGPASSWORD", "dbname": "PGDATABASE"}
        parts = conninfo_to_dict(self.dsn)
        found = {variable: str(parts[name]) for name, variable in of_libpq.items()}
        for prefix in ("RELAY", "CONSUME", "DEAD", "TOPIC"):
            found[f"DOVECOTE_{prefix}_KAFKA__BOOTSTRAP_SERVERS"] = self.bootstrap
        return found | {"DOVECOTE_RELAY_DSN": self.dsn}

    @property
    def brokers(self) -> int:
        """Number of brokers."""
        return sum(name.startswith("kafka") for name in self.members)

    @property
    def more(self) -> set[str]:
        """Its parts besides Postgres and Kafka: `SPARK`, `S3_SERVER`."""
        return {name for name, of in _OF.items() if of in self.members}

    @property
    def running(self) -> bool:
        """Whether all servers run."""
        return len(self.members) > 1 and all(one.running for one in self.members.values())


@explained()
def up(
    home: Path | None,
    progress: Progress | None = None,
    *,
    brokers: int | None = None,
    postgres: str | None = None,
    kafka: str | None = None,
    more: Collection[str] = (),
) -> tuple[StackState, bool]:
    """
    Start the servers of `home` that do not run; return the state, and whether all ran already.

    Without `home`, it is the stack of the current directory: its data is elsewhere if the user
    that runs Postgres cannot reach that directory. Without `brokers`, there are as many as the
    last time, or one. `postgres` and `kafka` are versions; without them, they are those of the
    last time, or the usual ones. `more` are `SPARK` and `S3_SERVER`; what a stack has once, it
    keeps.

    Raises:
        StackError: a server did not start, or the stack has another number of brokers.
        UnknownVersion: there is no such version here.
        OtherVersion: the stack has another version.
    """
    asked = {"postgres": POSTGRES.choose(postgres), "kafka": KAFKA.choose(kafka)}
    if brokers not in (None, 1, _REPLICAS):
        msg = f"a stack has one broker, or {_REPLICAS} that replicate; {brokers} is neither"
        raise StackError(msg)
    place = (home or DEFAULT_HOME).absolute()
    place.mkdir(parents=True, exist_ok=True)
    with _lock(place):
        state = StackState.read(place)
        number = brokers or (state.brokers if state else 0) or 1
        if state is not None and state.brokers not in (0, number):
            msg = (
                f"the stack in {state.directory} has {state.brokers} broker(s), not {number}; "
                "give the other one a --directory of its own"
            )
            raise StackError(msg)
        if state is not None and state.directory.is_dir():
            _refuse_others(state, asked)
        wanted = {*more, *(state.more if state else ())}
        if state is not None and state.running and wanted == state.more:
            return state, True
        if home is not None:
            directory = place
        elif state is not None and state.directory.is_dir():
            directory = state.directory
        else:
            directory = default_directory(place)
        servers = partial(
            _servers, directory, number, progress=progress, versions=asked, more=wanted
        )
        return _start_missing(place, directory, state, servers), False


def _refuse_others(state: StackState, asked: Mapping[str, str | None]) -> None:
    """Raise OtherVersion if a server of the stack has another version than the one asked for."""
    for name, member in state.members.items():
        known = POSTGRES if name == "postgres" else KAFKA
        if member.version:
            known.of_data(state.directory, member.version, asked[name.partition("-")[0]])


@explained()
def down(home: Path | None) -> bool:
    """
    End the servers that `up` started for `home`; return whether any ran.

    Raises:
        ServerFailed: one did not end.
        StackError: its folder or file cannot be used.
    """
    place = (home or DEFAULT_HOME).absolute()
    if not place.is_dir():
        return False
    with _lock(place):
        state = StackState.read(place)
        running = [m for m in state.members.values() if m.running] if state else []
        _end(running)
    return bool(running)


@explained()
def status(home: Path | None) -> StackState | None:
    """
    Return the state of the stack of `home`; None if it was never started.

    Raises:
        StackError: its folder or file cannot be used.
    """
    return StackState.read((home or DEFAULT_HOME).absolute())


def default_directory(place: Path) -> Path:
    """Return `place`, or a new temporary folder if the user that runs Postgres cannot go there."""
    user = server_user()
    return place if is_reachable(place, user) else temporary_directory(user)


def _start_missing(
    place: Path,
    directory: Path,
    state: StackState | None,
    of_stack: Callable[[Collection[str]], Servers],
) -> StackState:
    members = {name: m for name, m in state.members.items() if m.running} if state else {}
    if GATES in members:
        # They hold the port of a broker that is to come back; once they end, it can have it again.
        _end([members.pop(GATES)])
    if MASTER not in members:
        # They belong to a master that is gone; the next one does not wait for them.
        _end([members.pop(name) for name in [*members] if name.startswith(_WORKER)])
    servers = of_stack(set(members))
    missing = {name: each for name, each in servers.items() if name not in members}
    for group in _in_order(missing):
        start_together([missing[name][0] for name in group])
    for name, (server, address) in missing.items():
        members[name] = Member(
            address=address(),
            server=_process(server.pid),
            keeper=_process(server.keeper_pid),
            version=getattr(server, "version", ""),
        )
    after = StackState(directory=directory, members={name: members[name] for name in servers})
    after.write(place)
    # Detach only now: if we had been killed before, they would have ended with us, and not run
    # unknown.
    for server, _ in missing.values():
        server.detach()
    return after


def _in_order(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names of servers that start together, after those that they need."""
    found = [*names]
    # Brokers find each other through the gates, and workers report to the master.
    yield [name for name in found if name in {GATES, MASTER}]
    yield [name for name in found if name not in {GATES, MASTER}]


def _servers(
    directory: Path,
    brokers: int,
    running: Collection[str],
    *,
    progress: Progress | None,
    versions: Mapping[str, str | None],
    more: Collection[str],
) -> Servers:
    """Return the servers of a stack; they are new ones in this process."""
    found = _usual_servers(directory, brokers, running, progress=progress, versions=versions)
    if SPARK in more:
        cluster = SparkCluster(directory / "spark", cores=_CORES, has_master=MASTER in running)
        found[MASTER] = (cluster.master, lambda: cluster.url)
        for number, each in enumerate(cluster.workers, 1):
            found[f"{_WORKER}{number}"] = (each, partial(getattr, each, "address"))
    if S3_SERVER in more:
        s3 = S3Server(directory / "s3", buckets=(BUCKET,))
        found[S3_SERVER] = (s3, lambda: s3.url)
    return found


def _usual_servers(
    directory: Path,
    brokers: int,
    running: Collection[str],
    *,
    progress: Progress | None,
    versions: Mapping[str, str | None],
) -> Servers:
    if brokers == 1:
        stack = Stack(
            directory,
            progress=progress,
            postgres_version=versions["postgres"],
            kafka_version=versions["kafka"],
        )
        return {
            "postgres": (stack.postgres, lambda: stack.postgres.dsn),
            "kafka": (stack.kafka, lambda: stack.kafka.bootstrap),
        }
    postgres = Postgres(directory / "postgres", version=versions["postgres"], progress=progress)
    there = [number for number in range(1, brokers + 1) if f"kafka-{number}" in running]
    cluster = Cluster(
        directory, brokers=brokers, version=versions["kafka"], progress=progress, running=there
    )
    return {
        "postgres": (postgres, lambda: postgres.dsn),
        GATES: (cluster.gates, lambda: cluster.gates.door),
        **{
            f"kafka-{each.number}": (each, partial(getattr, each, "bootstrap"))
            for each in cluster.brokers
        },
    }


def _end(members: Sequence[Member]) -> None:
    for member in members:
        member.keeper.terminate()
    deadline = time.monotonic() + _DOWN_SECONDS
    while left := [each for each in members if each.running or each.keeper.running]:
        if time.monotonic() > deadline:
            pids = ", ".join(str(member.server.pid) for member in left)
            msg = f"servers that were asked to end still run after {_DOWN_SECONDS} s: {pids}"
            raise ServerFailed(msg)
        threading.Event().wait(_POLL_SECONDS)


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
