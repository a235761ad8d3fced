"""Version 4 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Tables that take turns, so that published rows go by TRUNCATE."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0003_wal")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(4)]
