"""Version 8 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Pack events of one call into shared messages of the log."""

    after = "0007_drained"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(8)]
