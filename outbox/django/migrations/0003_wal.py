"""Version 3 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Writing to the write-ahead log alone, where it is asked for."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0002_roles")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(3)]
