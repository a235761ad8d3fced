"""Places for the stack: folders that the servers' users can reach, and free ports."""

import os
import random
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dovecote.devstack.errors import StackError

LOOPBACK = "127.0.0.1"

# Below every system's range for outgoing connections: a client's socket cannot take the port of a
# server that is down.
_PORTS = range(15_000, 32_000)
_VALID = range(1, 65_536)


class User(NamedTuple):
    """The user that runs a server: its id and its group's."""

    uid: int
    gid: int


def cache() -> Path:
    """
    Return the folder for everything that is fetched or made once: `DOVECOTE_CACHE`.

    Raises:
        StackError: none is named, and the user has no home.
    """
    if given := os.environ.get("DOVECOTE_CACHE"):
        return Path(given).absolute()
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        msg = "this user has no home for what is fetched once; set DOVECOTE_CACHE to a folder"
        raise StackError(msg) from error
    return Path(base).absolute() / "dovecote"


def is_reachable(path: Path, user: User | None) -> bool:
    """Return whether `user` (None: this process) may go into `path` and all folders above it."""
    if user is None:
        return os.access(path, os.X_OK)
    resolved = path.resolve()
    return all(_may_search(folder, user) for folder in (resolved, *resolved.parents))


def temporary_directory(user: User | None) -> Path:
    """
    Make a new folder for servers, in the first temporary place that `user` can reach.

    Raises:
        StackError: there is none.
    """
    for place in temporary_places(user):
        directory = Path(tempfile.mkdtemp(prefix="dovecote-", dir=place))
        # The servers' own folders are closed; this one only has to let them through.
        directory.chmod(0o711)
        return directory
    msg = (
        f"no temporary folder can be searched by the user that runs Postgres ({user}); "
        f"set TMPDIR to one that can"
    )
    raise StackError(msg)


def temporary_places(user: User | None) -> Iterator[Path]:
    """Yield the existing folders for temporary files that `user` can reach."""
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108  # names inside are random or checked for their owner
        if Path(place).is_dir() and is_reachable(Path(place), user):
            yield Path(place)


def free_port() -> int:
    """Return a port of the loopback that nobody uses, or holds for later."""
    rng = random.SystemRandom()
    while not _can_have(port := rng.choice(_PORTS), share=False):
        pass
    return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on `port` of the loopback."""
    # Like servers, ignore lingering connections of an earlier server.
    return _can_have(port, share=True)


def hold(port: int) -> socket.socket:
    """
    Return a socket that reserves `port` while its server is down, until it is closed.

    It is bound, but does not listen: no server is hindered, and `free_port` passes it over. Other
    systems than Linux would hinder the server, so nothing is reserved there.
    """
    held = socket.socket()
    if sys.platform == "linux":
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, port))
    return held


def has_address(host: str) -> bool:
    """Return whether a server could listen at `host`: only Linux has all of 127.0.0.0/8."""
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _can_have(port: int, *, share: bool) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, share)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def kept_port(file: Path) -> tuple[int, socket.socket]:
    """
    Return the port in `file` if it is still free, and what holds it.

    Otherwise write a new one to `file`.
    """
    kept = _noted(file)
    if kept is not None and (held := _held(kept)) is not None:
        return kept, held
    # Another process may take a port in the moment between the look and the hold.
    while (held := _held(port := free_port())) is None:
        pass
    file.write_text(f"{port}\n")
    return port, held


def _noted(file: Path) -> int | None:
    """Return the port in `file`; None if it holds none, as after a full disk."""
    try:
        port = int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return port if port in _VALID else None


def _held(port: int) -> socket.socket | None:
    try:
        return hold(port) if is_free(port) else None
    except OSError:
        return None


def _may_search(folder: Path, user: User) -> bool:
    info = folder.stat()
    if info.st_uid == user.uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid == user.gid:
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)
