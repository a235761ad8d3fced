"""Version 3 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Write to the write-ahead log alone, on request."""

    after = "0002_roles"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(3)]
