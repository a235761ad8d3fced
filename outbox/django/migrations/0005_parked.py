"""Version 5 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Park events that cannot be published, and record what operators decide about them."""

    after = "0004_leaves"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(5)]
