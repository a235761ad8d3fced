"""A primary with a standby, and a failover."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy, rmtree
from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.devstack.places import LOOPBACK, temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.postgres.programs import installation
from outbox import schema
from tests.support.relaying import installed
from tests.support.waiting import patient, until

ROLE = "relay_without_replication"


LOGGED = "logged"

# Parameters of a connection that some server we support does not have.
_YOUNG = "sslnegotiation|sslcertmode|gssdelegation|load_balance_hosts|require_auth"


class Pair(NamedTuple):
    """A primary and its standby."""

    primary: Postgres
    standby: Postgres


@contextmanager
def paired() -> Iterator[Pair]:
    """Yield a primary with two outboxes, one of each capture, and a standby that follows it."""
    folder = temporary_directory(server_user())
    primary, standby = (Postgres(folder / name, fsync=False) for name in ("primary", "standby"))
    try:
        with primary:
            installed(primary.dsn)
            with psycopg.connect(primary.dsn, autocommit=True) as conn:
                conn.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'".encode())
                conn.execute(f"CREATE DATABASE {LOGGED}".encode())
                schema.install(conn, roles=schema.Roles(relays=[ROLE]))
            installed(make_conninfo(primary.dsn, dbname=LOGGED), capture="wal")
            copy_of(primary, standby.directory)
            with standby:
                yield Pair(primary, standby)
    finally:
        rmtree(folder)


def copy_of(primary: Postgres, folder: Path) -> None:
    """Make a standby of `primary` in `folder`."""
    user = server_user()
    folder.mkdir()
    folder.chmod(0o711)
    data = folder / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        os.chown(data, *user)
    password = str(conninfo_to_dict(primary.dsn)["password"])
    program = installation(user) / "bin/pg_basebackup"
    place = ["-h", LOOPBACK, "-p", str(primary.port), "-U", "postgres"]
    subprocess.run(
        [program, *place, "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync"],
        env={"PGPASSWORD": password},
        cwd=data,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=None if user is None else [],
        check=True,
        timeout=patient(60),
    )
    # The program may be newer than the server, and writes what that does not know.
    written = data / "postgresql.auto.conf"
    written.write_text(re.sub(rf" ?({_YOUNG})=\w+", "", written.read_text()))
    copy(primary.directory / "password", folder / "password")


def promote(pair: Pair) -> None:
    """Fail over: the primary is gone, and the standby takes its place."""
    pair.primary.kill()
    with psycopg.connect(pair.standby.dsn, autocommit=True) as conn:
        assert conn.execute("SELECT pg_promote(true, 30)").fetchone() == (True,)


def until_received(pair: Pair) -> None:
    """Wait until the standby has everything that the primary has written."""
    with (
        psycopg.connect(pair.primary.dsn, autocommit=True) as ahead,
        psycopg.connect(pair.standby.dsn, autocommit=True) as behind,
    ):
        (end,) = ahead.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        until(
            lambda: behind.execute(query, [end]).fetchone() == (True,),
            within=20,
            what=f"{end} on the standby",
        )


def dsns(server: Postgres) -> dict[str, str]:
    return {"table": server.dsn, "wal": make_conninfo(server.dsn, dbname=LOGGED)}


def place_of(dsn: str) -> tuple[str, int]:
    given = conninfo_to_dict(dsn)
    return str(given["host"]), int(str(given["port"]))
