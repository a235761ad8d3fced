"""Version 11 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Tie a place in the log to its database."""

    after = "0010_tickets"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(11)]
