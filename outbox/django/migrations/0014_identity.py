"""Version 14 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Give each outbox an id."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0013_counted")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(14)]
