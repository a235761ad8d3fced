"""Run commands of Dovecote and of Postgres."""

import subprocess
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from dovecote.devstack.postgres.postgres import installation, server_user
from tests.support.relaying import (
    COMMAND,
    DSN,
    Relays,
)
from tests.support.relaying import settings as relay_settings
from tests.support.waiting import patient


def init(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "init", "outbox", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
        env={"PATH": "/usr/bin:/bin", **environ},
    )


def doctor(
    fleet: Relays, *arguments: str, dsn: str = "", bootstrap: str = "", **fields: Any
) -> subprocess.CompletedProcess[str]:
    config = fleet.folder / "doctor.toml"
    config.write_text(
        relay_settings(bootstrap or fleet.bootstrap, name=fleet.name, **fields), encoding="utf-8"
    )
    return subprocess.run(
        [COMMAND, "relay", "doctor", "--config", str(config), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
        env={"PATH": "/usr/bin:/bin", DSN: dsn or fleet.dsn},
    )


def program(name: str, dsn: str, *arguments: str, given: str = "") -> str:
    """Run one of Postgres's programs on a database, and return its output."""
    password = str(conninfo_to_dict(dsn)["password"])
    done = subprocess.run(
        [installation(server_user()) / "bin" / name, *arguments, "--dbname", dsn],
        env={"PGPASSWORD": password, "PATH": "/usr/bin:/bin"},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
