"""Version 7 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Let a writer ask whether its events are published."""

    after = "0006_shards"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(7)]
