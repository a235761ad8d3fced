"""The outbox as a Django app, whose migrations install the schema."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):  # type: ignore[misc]  # Django ships no types
    """`outbox.django` in INSTALLED_APPS; it has no models."""

    name = "outbox.django"
    label = "outbox"
    verbose_name = "Transactional outbox"
