"""Version 2 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Give rights to each role, and none to PUBLIC."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0001_events")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(2)]
