"""Snapshots of a server's data, as of a volume: taken at any moment, and put back later."""

import subprocess
from pathlib import Path
from shutil import rmtree

from dovecote.devstack.postgres.postgres import Postgres

_COPY_SECONDS = 120


def take(server: Postgres, snapshot: Path) -> None:
    """
    Copy all files of `server` as they are at one moment.

    A server that runs is stopped for it where it is, and goes on: for the copy that is a crash.
    """
    if not server.running:
        _copy(server.data, snapshot)
        return
    server.pause()
    try:
        _copy(server.data, snapshot)
    finally:
        server.resume()


def put_back(server: Postgres, snapshot: Path) -> None:
    """Give `server`, which is not running, the files of `snapshot`, which stays."""
    rmtree(server.data)
    _copy(snapshot, server.data)
    # A server that ran when its files were copied seems to run in them.
    (server.data / "postmaster.pid").unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    # Python's own copy would forget whose the files are.
    command = ["cp", "-a", str(source), str(target)]
    subprocess.run(command, check=True, timeout=_COPY_SECONDS)
