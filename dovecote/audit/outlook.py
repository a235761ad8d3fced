"""How far one outbox was read."""

from dataclasses import dataclass, field

from dovecote.audit.postgres import Window
from dovecote.audit.rules.logged import Place
from dovecote.audit.rules.promoted import Reach


@dataclass
class Outlook:
    """How far one outbox was read, and what is not known of it."""

    window: Window = field(default_factory=lambda: Window(None))
    identity: str = ""
    covered: int = -1
    """All rows that were committed at this running time are read."""
    covered_wall: int = 0
    blind: list[tuple[int, int, int]] = field(default_factory=list)
    asked: int = 0
    """When the end of the window was taken, by the running time."""
    asked_wall: int = 0
    complete: bool = False
    in_log: bool = False
    """Its events are in the write-ahead log, which cannot be read now."""
    checked: bool = False
    """The database is the one that was read before."""
    place: Place = field(default_factory=Place)
    """How far the write-ahead log is read."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """For events of the log that relays may not have passed: the last number, and its commit."""
    passed: int = 0
    """The relays have passed the events of the log up to this number."""
    is_added: bool = False
    """It is new in a state whose topics are read already, perhaps with records of it."""
    reach: Reach = field(default_factory=Reach)
    """The server's log when the newest rows were read."""
    begun_wall: int = 0
    """When the reading of the log began, in milliseconds since 1970."""
