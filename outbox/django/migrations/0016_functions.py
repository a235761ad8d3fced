"""Version 16 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Every function is replaced by the text of its file."""

    after = "0015_limits"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(16)]
