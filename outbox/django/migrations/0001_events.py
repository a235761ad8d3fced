"""Version 1 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Create the table of events, and the functions that write to it."""

    initial = True
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(1)]
