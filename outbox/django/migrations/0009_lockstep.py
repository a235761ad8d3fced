"""Version 9 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Write the events of one call at a lower cost."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0008_packed")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(9)]
