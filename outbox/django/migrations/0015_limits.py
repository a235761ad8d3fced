"""Version 15 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Limit the size of an event."""

    after = "0014_identity"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(15)]
