"""Whether events are checked as they are written: a module that only writes loads no more."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outbox.event import Event

check: "Callable[[Event[Any]], None] | None" = None
"""The check that `enforce` has set; None: nothing is checked, and nothing is paid for it."""
