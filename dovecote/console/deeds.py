"""The log of who did what, in a file of JSON lines that outlives the console."""

import json
import os
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from dovecote.console.shapes import DeedShape
from dovecote.process.logs import one_line
from outbox.errors import BadSettings

_MOST_BYTES = 16_000_000
_SHOWN = 1_000


class DeedLog:
    """
    Appends one line to `deeds.jsonl` for each action, and has it on the disk before it returns.

    The file before it is kept as `deeds.1.jsonl` when one has grown to 16 MB.
    """

    def __init__(self, folder: Path) -> None:
        """
        Open the log in a folder, which is made if it is missing.

        Raises:
            BadSettings: nothing can be written there.
        """
        self._lock = threading.Lock()
        self._file = folder / "deeds.jsonl"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._last = deque(self._read(), maxlen=_SHOWN)
            # A kill may have cut the last line off: the next one begins anew.
            self._append(b"" if self._ends_with_line() else b"\n")
        except OSError as error:
            msg = (
                f"console.state: the log cannot be kept in {folder} ({error.strerror}): name a "
                "folder that this user may write to"
            )
            raise BadSettings(msg) from error

    def add(self, by: str, action: str, what: str, outcome: str) -> None:
        """
        Note an action.

        Raises:
            OSError: the line cannot be written.
        """
        deed = DeedShape(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            by=one_line(by),
            action=action,
            what=one_line(what),
            outcome=one_line(outcome),
        )
        line = json.dumps(deed, ensure_ascii=False) + "\n"
        with self._lock:
            if self._file.exists() and self._file.stat().st_size > _MOST_BYTES:
                self._file.replace(self._file.with_name("deeds.1.jsonl"))
            self._append(line.encode())
            self._last.append(deed)

    def last(self, limit: int) -> list[DeedShape]:
        """Return the last actions, newest first."""
        with self._lock:
            return list(self._last)[: -limit - 1 : -1]

    def _ends_with_line(self) -> bool:
        return not self._file.exists() or self._file.read_bytes()[-1:] in {b"", b"\n"}

    def _read(self) -> list[DeedShape]:
        found = deque[DeedShape](maxlen=_SHOWN)
        for file in (self._file.with_name("deeds.1.jsonl"), self._file):
            if file.exists():
                with file.open(encoding="utf-8", errors="replace") as lines:
                    found.extend(each for line in lines if (each := _deed(line)) is not None)
        return list(found)

    def _append(self, line: bytes) -> None:
        """Append a line and have it on the disk; if there is no room, nothing of it stays."""
        opened = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(opened).st_size
            try:
                while line:
                    line = line[os.write(opened, line) :]
                os.fsync(opened)
            except OSError:
                # The next line would continue a piece, and be lost with it.
                os.ftruncate(opened, size)
                raise
        finally:
            os.close(opened)


def _deed(line: str) -> DeedShape | None:
    """Return the action in a line; None: a line that a full disk or a kill cut off."""
    try:
        told = json.loads(line)
        return DeedShape(
            at=str(told["at"]),
            by=str(told["by"]),
            action=str(told["action"]),
            what=str(told["what"]),
            outcome=str(told["outcome"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
