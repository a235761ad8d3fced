"""Version 14 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Give each outbox an id."""

    after = "0013_counted"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(14)]
