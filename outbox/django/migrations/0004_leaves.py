"""Version 4 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Rotate over several tables, so that TRUNCATE removes published rows."""

    after = "0003_wal"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(4)]
