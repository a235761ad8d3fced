"""Version 13 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Refuse headers without counts."""

    after = "0012_judged"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(13)]
