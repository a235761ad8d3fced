"""The outbox as a Django app, whose migrations install the schema."""

from django.apps import AppConfig
from django.conf import settings
from django.core import mail
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models.signals import post_migrate

from outbox.schema import DEFAULT_SCHEMA, belongings

_FORGET = """
DO $forget$
DECLARE
    installed int;
    waiting boolean := false;
BEGIN
    IF to_regclass($name${schema}.migrations$name$) IS NOT NULL THEN
        EXECUTE $ask${installed}$ask$ INTO installed;
    END IF;
    IF installed IS NOT NULL THEN
        EXECUTE $ask$SELECT EXISTS (SELECT FROM {schema}.events)$ask$ INTO waiting;
    END IF;
    -- Most tests write none, and TRUNCATE is slow.
    IF waiting THEN
        TRUNCATE {schema}.events;
    END IF;
END
$forget$
"""


class OutboxConfig(AppConfig):  # type: ignore[misc]  # Django ships no types
    """`outbox.django` in INSTALLED_APPS; it has no models."""

    name = "outbox.django"
    label = "outbox"
    verbose_name = "Transactional outbox"

    def ready(self) -> None:
        """Have a test's events forgotten where Django flushes its rows."""
        post_migrate.connect(_flushed, sender=self)


def schema_name() -> str:
    """Return the schema that the project's settings name."""
    return getattr(settings, "OUTBOX_SCHEMA", DEFAULT_SCHEMA)


def forget_events(using: str = DEFAULT_DB_ALIAS) -> None:
    """Delete all events, published or not, between two tests that commit."""
    conn = connections[using]
    if conn.vendor == "postgresql":
        with conn.cursor() as cursor:
            cursor.execute(belongings().fill(_FORGET, schema_name()))


def _flushed(*, using: str, **signal: object) -> None:
    # `migrate` sends its plan, and `flush` has none. Where tests run, Django collects mails here.
    if "plan" not in signal and hasattr(mail, "outbox"):
        forget_events(using)
