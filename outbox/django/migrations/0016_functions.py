"""Version 16 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Every function is replaced by the text of its file."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0015_limits")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(16)]
