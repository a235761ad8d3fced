"""`dovecote push key` and `token`: make the secrets that push needs."""

import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from dovecote.cli.extras import require_push
from outbox.errors import BadSettings


def key(
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the key to this new file, which only you can read."
        ),
    ] = None,
) -> None:
    """
    Make a key that seals secrets in the database.

    Without `--file` it prints the key. A file that the output goes to can then be read by you
    alone.

    Example: dovecote push key --file /run/secrets/push-keys
    """
    require_push()
    from cryptography.fernet import Fernet

    made = Fernet.generate_key().decode()
    if file is None:
        _close_output()
        typer.echo(made)
    else:
        _write_new(file, f"{made}\n")
        typer.echo(f"wrote a key to {file}")


def _close_output() -> None:
    """Let nobody else read a file that the shell has made for the output."""
    try:
        found = os.fstat(sys.stdout.fileno())
        if stat.S_ISREG(found.st_mode):
            os.fchmod(sys.stdout.fileno(), 0o600)
    except OSError:
        return  # there is no such file, or it is another user's, who has chosen its mode


def _write_new(file: Path, text: str) -> None:
    """
    Write a file that only its owner can read, and that is there as a whole or not at all.

    Raises:
        BadSettings: it is there already, or cannot be written.
    """
    beside = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        # Made so, and never changed to it: between the two, others could open it.
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        try:
            os.link(beside, file)  # unlike a rename, it replaces nothing
        finally:
            beside.unlink()
    except FileExistsError as error:
        msg = (
            f"{file} is there already: write to a new file, and put its key before those of the "
            "old one, which still unseal"
        )
        raise BadSettings(msg) from error
    except OSError as error:
        msg = f"cannot write {file}: {error.strerror}"
        raise BadSettings(msg) from error


def token() -> None:
    """
    Make a token for the API.

    It prints the token, and the line that belongs into the settings.

    Example: dovecote push token
    """
    require_push()
    from dovecote.push.api.access import hashed

    made = secrets.token_urlsafe(32)
    typer.echo(f"token     {made}")
    typer.echo(f"settings  {hashed(made)}")
