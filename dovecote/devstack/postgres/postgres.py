"""A real Postgres in a folder of its own."""

import os
import pwd
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from dovecote.devstack.errors import StackError
from dovecote.devstack.keeper import Launch
from dovecote.devstack.places import LOOPBACK, User, is_reachable
from dovecote.devstack.postgres.programs import server_programs
from dovecote.devstack.processes import Process
from dovecote.devstack.progress import Progress
from dovecote.devstack.server import Server, run_to_end
from dovecote.devstack.versions import POSTGRES

_INITDB_SECONDS = 300
_REAP_SECONDS = 10.0
_REAP_POLL_SECONDS = 0.02

SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    # The path of a socket is limited to about 100 bytes; the path of a folder is not.
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "50",
    "max_replication_slots": "50",
    # Use the data folder instead of /dev/shm, which is small in containers and could keep
    # leftovers.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Settings in which the stack's Postgres differs from the defaults."""

UNSAFE_SETTINGS: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
"""Faster; safe against a crash of the server, but not of the machine."""


def server_user() -> User | None:
    """Return the user for Postgres, which refuses to run as root; None: this process's user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(entry.pw_uid, entry.pw_gid)
    msg = "Postgres does not run as root, and there is no user `postgres` or `nobody` to run it as"
    raise StackError(msg)


class Postgres(Server):
    """Postgres on a loopback port; `dsn` is for its superuser."""

    name = "Postgres"

    def __init__(
        self,
        directory: Path,
        *,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
        version: str | None = None,
        temporary: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """
        Choose the data and the version, which is that of existing data where none is given.

        Raises:
            UnknownVersion: `version` is not one of `versions.POSTGRES`.
            OtherVersion: the data in `directory` is of another version.
        """
        super().__init__(directory, temporary=temporary)
        self._settings = {**SETTINGS, **({} if fsync else UNSAFE_SETTINGS), **(settings or {})}
        self._user = server_user()
        self.data = directory / "data"
        self.version = POSTGRES.of_data(directory, self._kept_version(), version)
        self._progress = progress
        self._password_file = directory / "password"
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port it listens on, chosen at the first start and then kept."""
        if self._port is None:
            self._make_directory()
            self._port = self._keep_port("port")
        return self._port

    @property
    def dsn(self) -> str:
        """Connection string of the superuser, on the database `postgres`."""
        return make_conninfo(
            host=LOOPBACK,
            port=self.port,
            user="postgres",
            password=self._password_file.read_text().strip(),
            dbname="postgres",
        )

    def _kept_version(self) -> str | None:
        """Return the version that made the data; None if there is no data."""
        file = self.data / "PG_VERSION"
        return file.read_text().strip() if file.exists() else None

    def _make_directory(self) -> None:
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            # Override the umask: the server's user must get through to its data.
            self.directory.chmod(0o711)

    def _prepare(self) -> Launch:
        self._make_directory()
        if not is_reachable(self.directory, self._user):
            msg = (
                f"the user that runs Postgres ({self._user}) cannot go into {self.directory}; "
                f"choose a folder all of whose parents it may search, or leave the choice to us"
            )
            raise StackError(msg)
        home = server_programs(self.version, self._user, self._progress)
        if not (self.data / "PG_VERSION").exists():
            self._make_data(home)
        self._wait_for_the_last_one()
        settings = {**self._settings, "port": str(self.port)}
        return Launch(
            argv=[
                str(home / "bin/postgres"),
                *("-D", str(self.data)),
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            env=_environment(),
            directory=str(self.data),
            log=str(self.log),
            user=self._user.uid if self._user else None,
            group=self._user.gid if self._user else None,
            stop_signal=signal.SIGINT,  # "fast": ends connections instead of waiting for them
        )

    def _wait_for_the_last_one(self) -> None:
        """
        Wait until the system forgets a server whose keeper was killed.

        Until somebody has reaped it, its process exists, and its lock file holds.
        """
        lock = self.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().partition("\n")[0])
        except (FileNotFoundError, ValueError):
            return  # after a full disk it may be empty, which Postgres says itself
        deadline = time.monotonic() + _REAP_SECONDS
        while psutil.pid_exists(pid) and Process.of(pid) is None and time.monotonic() < deadline:
            threading.Event().wait(_REAP_POLL_SECONDS)

    def _make_data(self, home: Path) -> None:
        """
        Make the data in a folder beside its own, so that unfinished data never passes as complete.
        """
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(16))
        if self._user is not None:
            os.chown(new, *self._user)
            os.chown(self._password_file, *self._user)
        run_to_end(
            [
                str(home / "bin/initdb"),
                *("--pgdata", str(new)),
                *("--pwfile", str(self._password_file)),
                "--username=postgres",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ],
            failure=f"initdb could not make {new}",
            folder=new,
            seconds=_INITDB_SECONDS,
            user=self._user,
            env=_environment(),
        )
        new.rename(self.data)

    def _probe(self) -> str | None:
        try:
            with psycopg.connect(self.dsn, connect_timeout=2):
                return None
        except psycopg.OperationalError as error:
            return str(error).strip()


def _environment() -> dict[str, str]:
    """
    Return this process's environment without variables that configure other Postgres programs.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
