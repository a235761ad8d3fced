"""Version 13 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Refuse headers without counts."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0012_judged")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(13)]
