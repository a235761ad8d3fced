"""Version 9 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Events of one call are written for less."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0008_packed")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(9)]
