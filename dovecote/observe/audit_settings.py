"""The settings of `dovecote audit`: the watch file, and a table of the auditor's own."""

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from dovecote.observe.sources import WatchSettings
from dovecote.process.settings.models import HttpSettings, Settings
from dovecote.process.settings.values import PositiveDuration


class AuditTable(Settings):
    """The table `[audit]`."""

    state: Path | None = None
    """The file of its state, of one auditor alone. Required, unless `--once` is given."""

    statements: Path | None = None
    """A file that gets a statement a day, one JSON object a line. Absent: they are printed."""

    topics: tuple[str, ...] = ()
    """Topics to read from the start, besides those that rows name."""

    grace: PositiveDuration = timedelta(seconds=60)
    """How long an event may be without a record before it is looked at closely."""

    late: PositiveDuration = timedelta(minutes=5)
    """A record that comes longer than this after its row was written is late."""

    window: PositiveDuration = timedelta(minutes=15)
    """How long matched events are remembered by the time in their ids, to name both places of a
    double."""

    order: bool = True
    """Whether writers take the lock of a key before they write, so that its order is promised."""

    foreign: Literal["report", "ignore"] = "report"
    """Records with an id that no outbox has: `report` them, or count them only."""

    foreign_sources: tuple[str, ...] = ()
    """Sources (`ce_source`) of other producers of these topics, whose records are only counted."""

    accepted: tuple[str, ...] = ()
    """Ids of events that an operator has looked at: nothing is reported of them."""

    partitions_since: AwareDatetime | None = None
    """Since when the topics have their partitions. Default: the auditor's first look."""

    slot_bytes: int = Field(default=1_000_000_000, ge=1_000_000)
    """How much of the write-ahead log the auditor's slot may hold back, for an outbox that is
    captured from the log. Beyond it, the auditor begins anew, and says what was not audited."""

    http: HttpSettings = HttpSettings()


class AuditSettings(WatchSettings):
    """The file that `dovecote audit` reads."""

    audit: AuditTable = AuditTable()
    """The auditor's own settings."""
