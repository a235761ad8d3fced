"""A Django that is set up once for all tests, and its connections to a test's own database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg.conninfo import conninfo_to_dict


def set_up() -> None:
    """Configure Django, once in this process."""
    if not settings.configured:
        settings.configure(
            DATABASES={DEFAULT_DB_ALIAS: {"ENGINE": "django.db.backends.dummy"}},
            INSTALLED_APPS=["outbox.django"],
            USE_TZ=True,
        )
        django.setup()


@contextmanager
def django_database(dsn: str, *, engine: str = "postgresql", **options: Any) -> Iterator[Any]:
    """Make the database in `dsn` Django's default one; yield `django.db.connection`."""
    set_up()
    known = conninfo_to_dict(dsn)
    databases = {
        DEFAULT_DB_ALIAS: {
            "ENGINE": f"django.db.backends.{engine}",
            "NAME": known["dbname"],
            "USER": known.get("user", ""),
            "PASSWORD": known.get("password", ""),
            "HOST": known.get("host", ""),
            "PORT": known.get("port", ""),
            "OPTIONS": options,
        }
    }
    before = connections.settings
    connections.settings = connections.configure_settings(databases)
    try:
        yield connection
    finally:
        connection.close()
        # Otherwise the connection made from these settings would be handed out again.
        del connections[DEFAULT_DB_ALIAS]
        connections.settings = before
