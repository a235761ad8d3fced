"""Version 10 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Tie a command to the events that its operator saw."""

    after = "0009_lockstep"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(10)]
