"""Version 18 of the outbox."""

from typing import ClassVar

from outbox.django.operations import InstallOutbox, OutboxMigration


class Migration(OutboxMigration):
    """Roles and turns are held by functions, and not by locks that any role can take."""

    after = "0017_topics"
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(18)]
