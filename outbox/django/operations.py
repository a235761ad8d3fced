"""The parts of this app's migrations, which bring the outbox's schema to a version."""

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import NotSupportedError, router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from outbox.django.apps import schema_name
from outbox.schema import NOBODY, Roles, steps


class OutboxMigration(Migration):  # type: ignore[misc]  # Django ships no types
    """A migration of this app, whatever label the project has given the app."""

    after: str | None = None
    """The migration before."""

    def __init__(self, name: str, app_label: str) -> None:
        super().__init__(name, app_label)
        self.dependencies = [] if self.after is None else [(app_label, self.after)]


class InstallOutbox(Operation):  # type: ignore[misc]  # Django ships no types
    """
    Install the outbox, or upgrade it if it is older than `version`.

    An upgrade brings it to the newest version. The operation keeps what `dovecote init outbox`
    did.

    The schema is `settings.OUTBOX_SCHEMA`, or `outbox`; `settings.OUTBOX_ROLES` are granted what
    they need after an upgrade, and whenever `version` is the newest. Taking it away again is
    refused while events are in it, or may be in the write-ahead log.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Leave the project's models as they are: the outbox has none."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002  # Django's signature
        to_state: ProjectState,  # noqa: ARG002  # Django's signature
    ) -> None:
        if self._is_for(app_label, schema_editor):
            sql = steps.install(self.version, schema_name(), roles=_roles())
            schema_editor.execute(sql, params=None)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002  # Django's signature
        to_state: ProjectState,  # noqa: ARG002  # Django's signature
    ) -> None:
        if not self._is_for(app_label, schema_editor):
            return
        if self.version > 1:
            msg = (
                f"version {self.version} of the outbox has no way back to {self.version - 1}; to "
                f"take the whole outbox away: `migrate --fake {app_label} 0001`, then "
                f"`migrate {app_label} zero`"
            )
            raise IrreversibleError(msg)
        statement = steps.uninstall(schema_name(), versions=_versions(app_label, schema_editor))
        schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        return f"Bring the outbox's schema to version {self.version} or newer"

    @property
    def migration_name_fragment(self) -> str:
        return f"outbox_{self.version}"

    @staticmethod
    def _is_for(app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        conn = schema_editor.connection
        if not router.allow_migrate(conn.alias, app_label):
            return False
        if conn.vendor != "postgresql":
            msg = (
                f"the outbox needs PostgreSQL, and database {conn.alias!r} is {conn.vendor}; keep "
                f"app {app_label!r} away from it with a database router's allow_migrate"
            )
            raise NotSupportedError(msg)
        return True


def _versions(
    app_label: str, schema_editor: BaseDatabaseSchemaEditor
) -> steps.VersionTable | None:
    """Return the table of migrations, which each tenant of django-tenants has in its schema."""
    without: list[str] = []
    if hasattr(settings, "TENANT_APPS"):
        # A table notes migrations of apps, too, that its schema does not have.
        config = apps.get_app_config(app_label)
        names = {config.name, f"{type(config).__module__}.{type(config).__qualname__}"}
        if not names.intersection(settings.TENANT_APPS):
            return None
        if not names.intersection(settings.SHARED_APPS):
            without = [getattr(settings, "PUBLIC_SCHEMA_NAME", "public")]
    table = MigrationRecorder.Migration._meta.db_table  # noqa: SLF001  # public, says Django
    own = schema_editor.connection.ops.quote_name(table)
    return steps.VersionTable(table, own, [{"app": app_label, "name": "0001_events"}], without)


def _roles() -> Roles:
    roles = getattr(settings, "OUTBOX_ROLES", NOBODY)
    if not isinstance(roles, Roles):
        msg = f"OUTBOX_ROLES is an outbox.schema.Roles(writers=…, relays=…), not {roles!r}"
        raise ImproperlyConfigured(msg)
    return roles
