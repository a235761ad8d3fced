"""Version 2 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Give rights to each role, and none to PUBLIC."""

    after = "0001_events"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(2)]
