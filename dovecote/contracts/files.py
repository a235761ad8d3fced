"""Read and write files of contracts, also as a revision of git has them."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from dovecote.contracts.rules.contract import Contract, parsed, written
from outbox.errors import BadSettings

_LONGEST_S = 60


def store(path: Path, contracts: Iterable[Contract]) -> bool:
    """
    Write a file of contracts whole or not at all; return whether it is different now.

    Raises:
        BadSettings: two contracts are the same, or the file cannot be written.
    """
    text = written(contracts)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return False
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise BadSettings(msg) from error
    replaced(path, text)
    return True


def replaced(path: Path, text: str) -> None:
    """
    Write a file whole or not at all.

    Raises:
        BadSettings: it cannot be written.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        msg = f"{path} cannot be written: {error.strerror}"
        raise BadSettings(msg) from error


def load(path: Path) -> list[Contract]:
    """
    Return the contracts of a file.

    Raises:
        BadSettings: there is no such file, or it has none.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}; write it with `dovecote contracts export`"
        raise BadSettings(msg) from error
    return parsed(text, str(path))


def load_revision(path: Path, revision: str) -> list[Contract]:
    """
    Return the contracts that a file had in a revision of git.

    Raises:
        BadSettings: git does not know the revision, or the file in it.
    """
    if revision.startswith("-"):
        msg = f"{revision!r} is no revision of git"
        raise BadSettings(msg)
    where = path.resolve()
    command = ["git", "-C", str(where.parent), "show", f"{revision}:./{where.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"git cannot be asked for {revision}: {error}"
        raise BadSettings(msg) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        # Only a revision that git has can lack the file.
        command = ["git", "-C", str(where.parent), "rev-parse", "--verify", "--quiet", revision]
        known = subprocess.run(command, capture_output=True, timeout=_LONGEST_S, check=False)
        advice = (
            "fetch the revision, or correct its name"
            if known.returncode
            else "the file has to be there before a change can be compared with it: "
            "commit it there first"
        )
        msg = f"git has no {path.name} in {revision!r}: {said}; {advice}"
        raise BadSettings(msg)
    return parsed(done.stdout, f"{path.name} in {revision}")
