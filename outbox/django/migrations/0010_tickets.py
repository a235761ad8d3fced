"""Version 10 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Tie a command to the events that its operator saw."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0009_lockstep")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(10)]
