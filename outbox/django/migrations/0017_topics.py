"""Version 17 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Writers may be restricted to topics, and any number of events may be parked."""

    after = "0016_functions"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(17)]
