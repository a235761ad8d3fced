"""Version 3 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Write to the write-ahead log alone, on request."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0002_roles")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(3)]
