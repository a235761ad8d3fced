"""Version 12 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Check an ordinary event with a single expression."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0011_places")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(12)]
