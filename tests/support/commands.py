"""Run commands of Dovecote and of Postgres."""

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

from psycopg.conninfo import conninfo_to_dict

from dovecote.devstack.postgres.postgres import server_user
from dovecote.devstack.postgres.programs import installation
from tests.support.relaying import COMMAND, DSN, Relays, settings
from tests.support.waiting import patient

# Which Dovecote the command runs: as in this process.
_CODE = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}

Done: TypeAlias = subprocess.CompletedProcess[str]


def init(*arguments: str, part: str = "outbox", **environ: str) -> Done:
    return _done([COMMAND, "init", part, *arguments], environ)


def relay_command(
    command: str,
    fleet: Relays,
    *arguments: str,
    dsn: str = "",
    bootstrap: str = "",
    environ: Mapping[str, str] | None = None,
    **fields: Any,
) -> Done:
    """Run a command of `dovecote relay` with the settings of the fleet, some of them replaced."""
    config = fleet.folder / f"{command}.toml"
    config.write_text(
        settings(bootstrap or fleet.bootstrap, name=fleet.name, **fields), encoding="utf-8"
    )
    return _done(
        [COMMAND, "relay", command, *arguments, "--config", str(config)],
        {DSN: dsn or fleet.dsn, **(environ or {})},
    )


doctor = partial(relay_command, "doctor")
status = partial(relay_command, "status")


# In a tree that is not the installed one, the command runs the code of this tree.
_CODE = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def _done(command: list[str], environ: Mapping[str, str]) -> Done:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
        env={"PATH": "/usr/bin:/bin", **_CODE, **environ},
    )


def copied(source: str, target: str, *options: str) -> None:
    """Copy a database, or what `pg_dump` takes of it with these options, into another."""
    dump = program("pg_dump", source, *options)
    program("psql", target, "--quiet", "-v", "ON_ERROR_STOP=1", given=dump)


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
