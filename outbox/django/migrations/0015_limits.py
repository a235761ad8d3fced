"""Version 15 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Limit the size of an event."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0014_identity")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(15)]
