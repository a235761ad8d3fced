"""The token of a process without `api.tokens`: in a file that nobody but its user can read."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from outbox.errors import BadSettings

_NAME = "push-token"
_MOST_BYTES = 1_000
_TOKEN = re.compile(r"[!-~]{16,}")
# The columns and the state in the kernel's tables of TCP sockets.
_USER, _LISTENS = 7, "0A"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def default_file(environ: Mapping[str, str]) -> Path:
    """
    Return where the token of this user is: the server makes it there, and the commands read it.

    Raises:
        BadSettings: the user has no home.
    """
    base = environ.get("XDG_STATE_HOME", "")
    if not Path(base).is_absolute():
        try:
            base = str(Path(environ.get("HOME") or Path.home()) / ".local/state")
        except RuntimeError as error:
            msg = "this user has no home for a token of its own: set api.tokens or api.token_file"
            raise BadSettings(msg) from error
    return Path(base) / "dovecote" / _NAME


def made(file: Path) -> str:
    """
    Return the token in a file, which is made first if it is not there.

    Raises:
        BadSettings: the file can be neither read nor made, or others can read it.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            _make(file)
    except OSError as error:
        msg = (
            f"cannot make a token in {file} ({error.strerror}); without api.tokens each request "
            "needs it: set api.tokens, or api.token_file to where this user can write"
        )
        raise BadSettings(msg) from error
    return read(file)


def read(file: Path) -> str:
    """
    Return the token in a file.

    Raises:
        BadSettings: it cannot be read, holds no token, or others can read it or have made it.
    """
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            text = opened.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        msg = f"cannot read the token in {file}: {error.strerror}"
        raise BadSettings(msg) from error
    if found.st_uid not in {os.geteuid(), 0}:
        msg = f"{file} belongs to another user, who knows the token in it: remove it"
        raise BadSettings(msg)
    if found.st_mode & _OTHERS:
        msg = (
            f"others may read or write {file}, and know the token in it (its mode is "
            f"{stat.S_IMODE(found.st_mode):04o}): remove it, and the next start makes another"
        )
        raise BadSettings(msg)
    if not _TOKEN.fullmatch(text):
        msg = f"{file} holds no token: remove it, and the next start makes one"
        raise BadSettings(msg)
    return text


def strangers(port: int, tables: Iterable[str], users: Collection[int]) -> bool:
    """
    Return whether somebody but `users` listens on a port of this machine.

    `tables` are the kernel's, of IPv4 and IPv6. Any user can take the port while push is not
    running, and would be sent the token.
    """
    rows = (line.split() for table in tables for line in table.splitlines()[1:])
    return any(
        int(row[1].rpartition(":")[2], 16) == port and int(row[_USER]) not in users
        for row in rows
        if len(row) > _USER and row[3] == _LISTENS
    )


def kernels_tables() -> Iterator[str]:
    """Yield the kernel's tables of TCP sockets, as far as it has any."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            yield Path("/proc/net", name).read_text(encoding="ascii")


def _make(file: Path) -> None:
    # Several processes may begin at once: a file with its name is complete, and only one gets it.
    new = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(opened, "w") as text:
            text.write(secrets.token_urlsafe(32) + "\n")
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(new)
    finally:
        new.unlink()
