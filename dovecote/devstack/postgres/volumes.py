"""
Snapshots of a server's data, like those of a volume: taken at any moment, and restored later.
"""

import subprocess
from pathlib import Path
from shutil import rmtree

from dovecote.devstack.postgres.postgres import Postgres

_COPY_SECONDS = 120


def take(server: Postgres, snapshot: Path) -> None:
    """
    Copy all files of `server` as they are at one moment.

    A running server is stopped in place for the copy, and continues: to the copy this is a crash.
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
    """Give `server`, which must not run, the files of `snapshot`, which stays."""
    rmtree(server.data)
    _copy(snapshot, server.data)
    # If the server ran when its files were copied, the copy seems to run.
    (server.data / "postmaster.pid").unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    # Python's own copy would lose the files' owners.
    command = ["cp", "-a", str(source), str(target)]
    subprocess.run(command, check=True, timeout=_COPY_SECONDS)
