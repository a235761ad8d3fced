"""Find the place in a handler's own code at which an exception was raised."""

import sysconfig
from pathlib import Path
from traceback import walk_tb
from types import FrameType

_OURS = {"dedup", "dovecote", "outbox", "relay", "spark_jobs"}
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})


def place(error: BaseException) -> str | None:
    """
    Return `file:line in function` of the innermost frame that belongs to the handler's own code.

    Frames of libraries are passed over, unless the handler itself is installed as one. None: the
    exception was raised before the handler was called, or nowhere.
    """
    found = _innermost(error)
    if found is None:
        return None
    code, line = found[0].f_code, found[1]
    return f"{Path(code.co_filename).name}:{line} in {code.co_name}"


def _innermost(error: BaseException) -> tuple[FrameType, int] | None:
    theirs = [each for each in walk_tb(error.__traceback__) if _is_theirs(each[0])]
    own = [each for each in theirs if not _file(each[0]).startswith(_INSTALLED)]
    if not own:
        own = [each for each in theirs if _package(each[0]) == _package(theirs[0][0])]
    return own[-1] if own else None


def _is_theirs(frame: FrameType) -> bool:
    """Return whether a frame is of a file, and neither ours nor Python's."""
    file = _file(frame)
    standard = file.startswith(_STANDARD) and not file.startswith(_INSTALLED)
    return not _is_ours(frame) and not standard and not file.startswith("<")


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_ours(frame: FrameType) -> bool:
    """Return whether a frame is of this library; the demo's handler is a user's to it."""
    name = str(frame.f_globals.get("__name__", ""))
    return _package(frame) in _OURS and not name.startswith("dovecote.demo.")
