"""The options by which letters are selected, and the settings file that names the parts."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dovecote.observe.dead.shapes import Selection
from dovecote.observe.sources import PREFIX, WatchSettings, read
from outbox.errors import BadSettings

PartOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        metavar="PART",
        help="Only this part, as the file names it: consumer/shipping, push/main, "
        "push/main/SUBSCRIPTION, or a kind such as push; can be repeated.",
    ),
]


def watched(config: Path | None) -> WatchSettings:
    """
    Return the settings that name the parts.

    Raises:
        BadSettings: no file is given, or it cannot be read.
    """
    if config is None and not any(name.startswith(f"{PREFIX}_SOURCES") for name in os.environ):
        msg = "give --config with a file that names the parts in [sources]; see `dovecote dead`"
        raise BadSettings(msg)
    return read(WatchSettings, config)


def selected(
    *,
    part: Sequence[str] | None,
    ids: Sequence[str | None] = (),
    topic: str | None,
    key: str | None,
    type_: str | None,
    reason: str | None,
    since: datetime | None,
    until: datetime | None,
    where: str | None,
) -> Selection:
    """Return what the options select."""
    return Selection(
        parts=tuple(part or ()),
        ids=tuple(each for each in ids if each is not None),
        topic=topic,
        key=None if key is None else os.fsencode(key),
        type=type_,
        reason=reason,
        since=since,
        until=until,
        where=where,
    )
