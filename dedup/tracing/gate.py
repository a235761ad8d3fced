"""Find out whether a consumer makes spans."""

from importlib import import_module
from typing import TYPE_CHECKING

from outbox.tracing.gate import is_on

if TYPE_CHECKING:
    from dedup.tracing.consuming import ConsumerSpans


def consumer_spans(group: str, part: str = "consumer") -> "ConsumerSpans | None":
    """Return what makes the spans of a consumer; None if this process has no SDK set up."""
    if not is_on():
        return None
    # Not imported: the library may not be installed.
    made: ConsumerSpans = import_module("dedup.tracing.consuming").ConsumerSpans(part, group)
    return made
