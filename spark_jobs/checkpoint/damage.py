"""Find damage in a checkpoint on this machine, as a crash or a full disk leaves it."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from outbox.errors import BadSettings

_BACK = "put the checkpoint back from a copy, or begin with a new one (and `--adopt`, once)"


def pins(checkpoint: str, name: str, text: str) -> dict[str, object]:
    """
    Return the contents of the file in which a job notes its settings.

    Raises:
        BadSettings: it is cut or empty.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    msg = (
        f"{checkpoint}/{name} is {_state(text)}: remove it with its .{name}.crc and run once with "
        "--adopt, with the settings that the checkpoint was made with"
    )
    raise BadSettings(msg)


def began(checkpoint: str, name: str, text: str) -> dict[str, Any]:
    """
    Return the offsets in the file in which Spark's own source notes where it began.

    Raises:
        BadSettings: it is cut or empty.
    """
    try:
        found: dict[str, Any] = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        msg = f"{checkpoint}/{name} is {_state(text)}: {_BACK}"
        raise BadSettings(msg) from None
    return found


def require_whole(folder: Path, *, has_state: bool) -> None:
    """
    Check the files of a checkpoint that its next start reads.

    Raises:
        BadSettings: one is damaged or gone; the message says what resolves it.
    """
    planned, done = numbers(folder / "offsets"), numbers(folder / "commits")
    if planned and not (folder / "metadata").exists():
        msg = f"{folder}/metadata is gone, which names the query of the checkpoint: {_BACK}"
        raise BadSettings(msg)
    if (folder / "metadata").exists():
        _require(folder / "metadata", _is_object, _BACK)
    for number in sorted(planned)[-2:]:
        again = number == max(planned) and number not in done
        _require(
            folder / "offsets" / str(number),
            _is_plan,
            f"remove it with its .{number}.crc, and the batch is planned again"
            if again
            else _BACK,
        )
    for number in sorted(done)[-1:]:
        _require(
            folder / "commits" / str(number),
            _is_log,
            f"remove it with its .{number}.crc, and the batch runs again; what it has written is "
            "not written twice",
        )
    if planned and (gone := set(range(min(planned), max(planned))) - planned):
        msg = f"{folder}/offsets/{max(gone)} is gone, between others that are there: {_BACK}"
        raise BadSettings(msg)
    if has_state and done and not (folder / "state").is_dir():
        msg = f"{folder}/state is gone, which holds what is open: {_BACK}"
        raise BadSettings(msg)


def numbers(log: Path) -> set[int]:
    """Return the numbers of the batches in a log of a checkpoint."""
    return numbered(file.name for file in log.iterdir()) if log.is_dir() else set()


def numbered(names: Iterable[str]) -> set[int]:
    """Return the numbers among the names of a log's files."""
    return {int(name) for name in names if name.isdigit()}


def local(name: str) -> Path | None:
    """
    Return the folder of a checkpoint; None: it is not on this machine.

    As Hadoop reads names, a colon before the first slash ends a scheme: `file:/data` is a folder.
    """
    scheme, colon, rest = name.partition(":")
    if not colon or "/" in scheme:
        return Path(name)
    is_here = scheme == "file" and rest.startswith("/")
    # Two slashes begin the name of a host, and a third one ends it.
    if not is_here or (rest.startswith("//") and not rest.startswith("///")):
        return None
    return Path("/" + rest.lstrip("/"))


def _require(file: Path, is_whole: Callable[[str], bool], resolves: str) -> None:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # Spark has removed it meanwhile: another run goes on
        return
    if not is_whole(text):
        msg = f"{file} is {_state(text)}, after a crash or with a full disk: {resolves}"
        raise BadSettings(msg)


def _state(text: str) -> str:
    return "cut" if text.strip() else "empty"


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{") and _is_json(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_plan(text: str) -> bool:
    """Return whether a text is a log with Spark's settings, and then the offsets of the source."""
    return _is_log(text, 2)


def _is_log(text: str, fewest: int = 1) -> bool:
    """Return whether a text has a version, and then lines of JSON, or `-` for a source without."""
    version, *lines = text.splitlines() or [""]
    whole = [line for line in lines if line not in {"-", ""}]
    return (
        version.startswith("v")
        and version[1:].isdigit()
        and len(whole) >= fewest
        and all(map(_is_json, whole))
    )
