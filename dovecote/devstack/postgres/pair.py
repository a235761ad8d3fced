"""A Postgres primary and its synchronous standby, behind a balancer."""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from shutil import copy, rmtree
from typing import Self
from weakref import finalize

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.devstack.errors import ServerFailed, StackError
from dovecote.devstack.network.gates import Gates, Route
from dovecote.devstack.places import LOOPBACK, free_port, temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.postgres.programs import installation
from dovecote.devstack.server import run_to_end

_BACKUP_SECONDS = 300
_FOLLOW_SECONDS = 180.0
_PROMOTE_SECONDS = 120
_POLL_SECONDS = 0.05
_FAILOVER_SLOTS = 17

CLIENTS = "clients"
"""The gate through which clients reach the primary."""

SETTINGS: Mapping[str, str] = {
    # A standby that is made later needs these; only the present standby has a slot.
    "hot_standby_feedback": "on",
    "sync_replication_slots": "on",
    "max_prepared_transactions": "20",
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "200ms",
}
"""Settings in which both servers differ from a single one."""


class Pair:
    """
    Two servers, `a` and `b`: one is the primary and the other its synchronous standby.

    `dsn` leads to the primary through a balancer: new connections go to the newest primary, old
    ones stay on their server. Replication goes through a gate named `b>a`, or `a>b`.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        fsync: bool = False,
        settings: Mapping[str, str] | None = None,
        version: str | None = None,
    ) -> None:
        """
        Choose the data and the version of both servers.

        Raises:
            StackError: the version has no slots on standbys.
        """
        self._temporary = directory is None
        self.directory = (directory or temporary_directory(server_user())).absolute()
        if self._temporary:
            finalize(self, _remove, self.directory, os.getpid())
        self._servers = {
            name: Postgres(
                self.directory / name,
                fsync=fsync,
                settings={**SETTINGS, **(settings or {})},
                version=version,
                temporary=self._temporary,
            )
            for name in ("a", "b")
        }
        if (found := int(self._servers["a"].version)) < _FAILOVER_SLOTS:
            msg = (
                f"a pair needs Postgres {_FAILOVER_SLOTS} or newer, which keeps slots on "
                f"standbys; this is {found}"
            )
            raise StackError(msg)
        self._primary = "a"
        balancer, self._ports = free_port(), {name: free_port() for name in self._servers}
        routes = [Route(CLIENTS, f"{LOOPBACK}:{balancer}", f"{LOOPBACK}:{self.primary.port}")]
        routes += [
            Route(f"{_other(name)}>{name}", f"{LOOPBACK}:{port}", f"{LOOPBACK}:{server.port}")
            for (name, server), port in zip(
                self._servers.items(), self._ports.values(), strict=True
            )
        ]
        self._balancer = balancer
        self.gates = Gates(self.directory / "gates", routes, temporary=self._temporary)

    @property
    def primary(self) -> Postgres:
        return self._servers[self._primary]

    @property
    def standby(self) -> Postgres:
        """The other server: the standby, or, before `renew`, the former primary."""
        return self._servers[_other(self._primary)]

    @property
    def dsn(self) -> str:
        """Connection string of the superuser, through the balancer."""
        return make_conninfo(self.primary.dsn, port=self._balancer)

    def start(self) -> None:
        """
        Start the primary and its standby, as far as they do not run.

        Raises:
            StackError: one did not start.
        """
        self.gates.start()
        self.primary.start()
        self.renew()

    def stop(self) -> None:
        """Stop both; their data goes if the folder was temporary."""
        for server in (self.standby, self.primary):
            if self._temporary:
                server.kill()
            else:
                server.stop()
        self.gates.kill()
        if self._temporary:
            _remove(self.directory, os.getpid())

    def promote(self, *, split: bool = False) -> None:
        """
        Kill the primary, and promote the standby; new connections then go there.

        With `split` the old primary goes on, and so do the sessions that are connected to it.
        """
        if not split:
            self.primary.kill()
        new = self.standby
        # Its own standby does not exist yet, and every commit would wait for it.
        self._ask_for_none(new)
        with psycopg.connect(new.dsn, autocommit=True) as conn:
            row = conn.execute("SELECT pg_promote(true, %s)", [_PROMOTE_SECONDS]).fetchone()
        if row != (True,):
            msg = f"{new.name} at port {new.port} was not promoted within {_PROMOTE_SECONDS} s"
            raise ServerFailed(msg)
        self._primary = _other(self._primary)
        self.gates.shut(leads={CLIENTS: f"{LOOPBACK}:{new.port}"})

    def renew(self) -> None:
        """
        Make a new standby of the primary in place of the other server, and make it synchronous.
        """
        self._ask_for_none(self.primary)
        standby, name = self.standby, _other(self._primary)
        standby.kill()
        self._copy(standby, name)
        standby.start()
        deadline = time.monotonic() + _FOLLOW_SECONDS
        while not self._follows(name):
            if time.monotonic() > deadline:
                msg = f"the standby {name} does not follow within {_FOLLOW_SECONDS:g} s"
                raise ServerFailed(msg)
            threading.Event().wait(_POLL_SECONDS)
        _set(self.primary, "synchronous_standby_names", name)
        # Readers of the log must not be ahead of the standby.
        _set(self.primary, "synchronized_standby_slots", _slot(name))

    def _ask_for_none(self, server: Postgres) -> None:
        _set(server, "synchronous_standby_names", "")
        _set(server, "synchronized_standby_slots", "")

    def has_slots(self) -> bool:
        """
        Return whether the standby has all slots that a promotion must not lose.

        A slot gets there some time after its reader on the primary has moved on.
        """
        with psycopg.connect(self.primary.dsn, autocommit=True) as ahead:
            wanted = ahead.execute("SELECT slot_name FROM pg_replication_slots WHERE failover")
            names = set(wanted.fetchall())
        with psycopg.connect(self.standby.dsn, autocommit=True) as behind:
            there = behind.execute(
                "SELECT slot_name FROM pg_replication_slots WHERE synced AND NOT temporary"
            )
            return names <= set(there.fetchall())

    def _follows(self, name: str) -> bool:
        with psycopg.connect(self.primary.dsn, autocommit=True) as conn:
            found = conn.execute(
                "SELECT FROM pg_stat_replication WHERE application_name = %s"
                " AND state = 'streaming'",
                [name],
            ).fetchone()
        return found is not None

    def _copy(self, standby: Postgres, name: str) -> None:
        user, data = server_user(), standby.data
        _ = standby.port  # makes its folder
        rmtree(data, ignore_errors=True)
        data.mkdir(mode=0o700)
        if user is not None:
            os.chown(data, *user)
        slot = _slot(name)
        with psycopg.connect(self.primary.dsn, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE slot_name LIKE 'standby%%' AND NOT active"
            )
            conn.execute("SELECT pg_create_physical_replication_slot(%s, true)", [slot])
        source = conninfo_to_dict(self.primary.dsn)
        conninfo = make_conninfo(
            host=LOOPBACK,
            port=self._ports[self._primary],
            user=str(source["user"]),
            dbname="postgres",
            application_name=name,
        )
        run_to_end(
            [
                str(installation(user) / "bin/pg_basebackup"),
                *("-d", conninfo, "-D", str(data), "-S", slot),
                *("-R", "-X", "stream", "-c", "fast", "--no-sync"),
            ],
            failure=f"no standby could be made in {data}",
            folder=data,
            seconds=_BACKUP_SECONDS,
            user=user,
            env={"PGPASSWORD": str(source["password"])},
        )
        copy(self.primary.directory / "password", standby.directory / "password")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _other(name: str) -> str:
    return "b" if name == "a" else "a"


def _slot(name: str) -> str:
    return f"standby_{name}"


def _set(server: Postgres, name: str, value: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        conn.execute("SELECT pg_reload_conf()")


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:
        rmtree(directory, ignore_errors=True)
