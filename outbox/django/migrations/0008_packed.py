"""Version 8 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Pack events of one call into shared messages of the log."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0007_drained")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(8)]
