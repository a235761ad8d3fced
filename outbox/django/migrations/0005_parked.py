"""Version 5 of the outbox."""

from typing import ClassVar

from django.db import migrations

from outbox.django.operations import InstallOutbox


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types
    """Park events that cannot be published, and record what operators decide about them."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("outbox", "0004_leaves")]
    operations: ClassVar[list[InstallOutbox]] = [InstallOutbox(5)]
