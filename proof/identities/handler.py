"""The handler of the consumer that is proved: it notes what it gets, and when."""

import os
import time
from pathlib import Path

from outbox import Event

NOTES = "PROOF_NOTES"
"""The variable that names the file of the notes."""


def handle(event: Event) -> None:
    """Add a line for an event."""
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as file:
        file.write(f"{time.time()} {event.id}\n")
