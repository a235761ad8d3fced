"""Version 7 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Let a writer ask whether its events are published."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0006_shards")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(7)]
