"""Version 9 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Write the events of one call at a lower cost."""

    after = "0008_packed"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(9)]
