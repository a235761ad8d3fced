"""Version 12 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Check an ordinary event with a single expression."""

    after = "0011_places"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(12)]
