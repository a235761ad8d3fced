"""One log line per fact, on stderr, as text or as JSON; text of others stays within its line."""

import contextlib
import fcntl
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

_MOST = 4_000
"""Most characters of a line that are logged."""
_LINES = 100
"""Most lines of a traceback that are logged."""
# A reader of the log that is as slow as this is not waited for either.
_TURN_SECONDS, _TRY_SECONDS = 2.0, 0.001
_INDENT = "    "
_FRAME = re.compile(r'[ |]*File "')
# Libraries that Dovecote brings, and that log more than an operator wants to know.
_QUIET = (
    *("alembic", "asyncio", "httpcore", "httpx", "psycopg", "py4j", "pyspark", "urllib3"),
    *("uvicorn", "sqlalchemy"),
)


class LogFormat(StrEnum):
    """How a log line is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Which messages are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def one_line(text: str) -> str:
    r"""
    Return text on one line that can neither steer a terminal nor fill a disk.

    Characters that cannot be shown become escapes, such as `\n`. A text that is cut says so.
    """
    kept = text[:_MOST]
    if not kept.isprintable():
        shown = (each if each.isprintable() else _escaped(each) for each in kept)
        kept = "".join(shown)[:_MOST]
    return kept if len(text) <= _MOST else f"{kept}… ({len(text)} characters in all)"


def last_line(error: BaseException) -> str:
    """Return what a command says of the error that ends it; further lines are indented."""
    first, *more = _bounded(str(error)) or [""]
    shown = [line if line[:1] == " " else "  " + line for line in more]
    return "\n".join([f"dovecote: {first}", *shown, ""])


def _bounded(text: str) -> list[str]:
    """Return the lines of a text, each of which can be shown, and not too many of them."""
    lines = text.splitlines()
    over = len(lines) - _LINES
    if over > 0:
        half = _LINES // 2
        lines = [*lines[:half], f"… {over} more lines", *lines[-half:]]
    return [one_line(each) for each in lines]


class _Text(logging.Formatter):
    def __init__(self, process: int | None) -> None:
        super().__init__()
        self._process = "" if process is None else f"[{process}]"

    def format(self, record: logging.LogRecord) -> str:
        at, name = self.formatTime(record), one_line(record.name) + self._process
        line = f"{at} {record.levelname:<7} {name}: {one_line(_message(record))}"
        return "\n".join([line, *_details(record)])


class _Json(logging.Formatter):
    def __init__(self, process: int | None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._process,
            "message": one_line(_message(record)),
        }
        if details := _details(record):
            fields["exception"] = "\n".join(each.removeprefix(_INDENT) for each in details)
        return json.dumps(fields)


class _InTurn(logging.StreamHandler[TextIO]):
    """Writes a record at a time, also beside the other processes with which it shares a log."""

    turns: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.nullcontext() if self.turns is None else _turn(self.turns):
            super().emit(record)


@contextmanager
def _turn(descriptor: int) -> Iterator[None]:
    """Hold the file for this process; a stopped process may hold it, and is not waited for."""
    deadline = time.monotonic() + _TURN_SECONDS
    while not _held(descriptor) and time.monotonic() < deadline:
        time.sleep(_TRY_SECONDS)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _held(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as the systems say it
        return False
    return True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  # logging would print all of it, lines and all
        return f"{record.msg} (its values cannot be told: {type(error).__name__})"


def _details(record: logging.LogRecord) -> list[str]:
    """Return the lines below a message: a traceback, a stack, or the attribute `details`."""
    told = [str(getattr(record, "details", "")), record.stack_info or ""]
    if record.exc_info and record.exc_info[1] is not None:
        told.append("\n".join(_traced(record.exc_info[1])))
    return [_INDENT + line for each in told for line in _bounded(each)]


def _traced(error: BaseException) -> Iterator[str]:
    """Yield the lines of a traceback; the text of an exception is one of them."""
    for chunk in traceback.TracebackException.from_exception(error, compact=True).format():
        if _FRAME.match(chunk):
            yield from chunk.splitlines()
        else:
            yield one_line(chunk.strip("\n"))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def configure(
    form: LogFormat, level: LogLevel = LogLevel.INFO, *, process: int | None = None
) -> logging.Logger:
    """
    Send the log of this process to stderr, and return its logger.

    `process` is its number, if it is one of several under a parent; each line names it.

    The loggers of an application are shown from the same level on.
    """
    least = logging.getLevelNamesMapping()[level.upper()]
    handler = _InTurn(sys.stderr)
    handler.setFormatter(_Json(process) if form is LogFormat.JSON else _Text(process))
    logging.basicConfig(level=least, handlers=[handler], force=True)
    for name in _QUIET:
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:  # otherwise the application has chosen one
            library.setLevel(logging.WARNING)
    return logging.getLogger("dovecote")


def share_log(descriptor: int) -> None:
    """
    Write whole records, where several processes share a log and this file, which they lock.

    Only up to 4,096 bytes at once are whole by themselves in a pipe, and a traceback is longer.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _InTurn):
            handler.turns = descriptor
