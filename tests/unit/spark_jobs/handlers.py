"""Handlers that tests name as `module:function`."""

import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from dedup.rules.policies.results import (
    Again,
    Dead,
    Done,
    NonRetriable,
    Output,
    Result,
    Retry,
    Skip,
)
from outbox.envelope import ATTEMPT, ROUND
from outbox.event import Event

_RESULTS: Mapping[str, Result] = {
    "again": Again(timedelta(seconds=5)),
    "skip": Skip("not today"),
    "retry": Retry("later"),
    "dead": Dead("never"),
    "split": Done((Output({"part": 1}), Output({"part": 2}, key="other"))),
    "unwritable": Done((Output(object()),)),
    "large": Done((Output("x" * 2_000_000),)),
}


def by_value(event: Event) -> Result | None:
    """Return the result that the event's value names."""
    value: Any = event.value
    match value["do"]:
        case "raise":
            msg = f"broken {event.id}"
            raise RuntimeError(msg)
        case "refuse":
            raise NonRetriable("no use")  # noqa: EM101, TRY003  # what a handler would write
        case "leave":
            raise GeneratorExit
        case "exit":
            raise SystemExit(3)
        case "true":
            return True  # type: ignore[return-value]  # the mistake in question
        case what:
            return _RESULTS.get(what)


def waits(event: Event) -> None:
    """
    Wait for the file that the event's value names, if any; report the wait with another file.
    """
    value: Any = event.value
    file = value.get("wait_for")
    if file is not None:
        Path(f"{file}-waited-for").touch()
    pause, deadline = threading.Event(), time.monotonic() + 120
    while file is not None and not Path(file).exists():
        pause.wait(0.05)
        if time.monotonic() > deadline:
            msg = f"{file} does not appear"
            raise TimeoutError(msg)


def until_finished(event: Event) -> Result | None:
    """Fail, or ask to come again, as often as the event's value says."""
    value: Any = event.value
    went = {name: int(text) for name, text in event.headers if name in {ROUND, ATTEMPT} and text}
    if went.get(ROUND, 0) < value.get("again", 0):
        return Again(timedelta(milliseconds=value.get("after", 100)))
    if went.get(ATTEMPT, 1) <= value.get("fails", 0):
        return Retry("not yet")
    return Dead("never") if value.get("dead") else None
