"""Version 11 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Tie a place in the log to its database."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0010_tickets")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(11)]
