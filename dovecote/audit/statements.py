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

    A last line that is no statement is what a kill left of a write: it is replaced.

    Raises:
        OSError: the file cannot be read or written.
    """
    with file.open("a+b") as lines:
        lines.seek(0)
        has: set[str] = set()
        whole, last = 0, b"\n"
        for line in lines:
            found = hash_of(line.decode(errors="replace"))
            if line.endswith(b"\n") or found:
                whole, last = whole + len(line), line
                has.add(found or "")
        lines.truncate(whole)
        if not last.endswith(b"\n"):
            lines.write(b"\n")  # an editor took it away
        for each in statements:
            if each["hash"] not in has:
                lines.write(json.dumps(each).encode() + b"\n")
        lines.flush()
        os.fsync(lines.fileno())
