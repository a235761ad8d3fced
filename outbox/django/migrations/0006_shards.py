"""Version 6 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Store the number of shards in which an outbox is published."""

    after = "0005_parked"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(6)]
