"""Append statements to their file, each once."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dovecote.audit.rules.statement import hash_of


def append(file: Path, statements: Iterable[Mapping[str, Any]]) -> None:
    """
    Append the statements that the file does not have, and put them on disk.

    A last line without an end is what a kill left of a write: it is replaced.

    Raises:
        OSError: the file cannot be read or written.
    """
    with file.open("a+b") as lines:
        lines.seek(0)
        has: set[str] = set()
        whole = 0
        for line in lines:
            if line.endswith(b"\n"):
                whole += len(line)
                has.add(hash_of(line.decode(errors="replace")) or "")
        lines.truncate(whole)
        for each in statements:
            if each["hash"] not in has:
                lines.write(json.dumps(each).encode() + b"\n")
        lines.flush()
        os.fsync(lines.fileno())
