"""Version 6 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Store the number of shards in which an outbox is published."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0005_parked")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(6)]
