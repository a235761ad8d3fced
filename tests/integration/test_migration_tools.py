"""Django's and Alembic's migrations install the outbox that `dovecote init outbox` installs."""

import io
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import NotSupportedError, connections
from django.db.migrations.exceptions import IrreversibleError
from django.test.utils import override_settings

from dovecote.devstack import Stack
from outbox import alembic, schema, write
from outbox.django.apps import OutboxConfig
from outbox.django.operations import InstallOutbox
from outbox.errors import BadSettings
from outbox.schema import Roles
from outbox.schema.steps import install, uninstall
from tests import old_schemas
from tests.support.fix_django import django_database
from tests.support.migrating import EVENT, NEWEST, installed, put, shape
from tests.support.waiting import patient, until


def migrations(dsn: str, name: str = "outbox") -> list[tuple[int, str]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            f"SELECT version, name FROM {name}.migrations ORDER BY version".encode()  # noqa: S608  # our own
        ).fetchall()


@pytest.fixture
def django(database: str) -> Iterator[str]:
    """A Django project whose database is this test's own."""
    with django_database(database):
        yield database


def migrate(*arguments: str) -> str:
    said = io.StringIO()
    call_command("migrate", *arguments, verbosity=1, stdout=said)
    return said.getvalue()


def test_no_statement_calls_a_function_that_others_have_put_on_the_path(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(
            "CREATE SCHEMA others; SET search_path = others, public;"
            " CREATE FUNCTION others.format(text, text) RETURNS text LANGUAGE plpgsql"
            " AS 'BEGIN RAISE EXCEPTION ''called with the rights of another''; END'"
        )
        for statement in (install(NEWEST), uninstall(), uninstall()):
            conn.execute(statement.encode())
            # The transaction goes on with the path that it had.
            assert conn.execute("SHOW search_path").fetchone() == ("others, public",)


def test_one_statement_installs_what_init_installs(database: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn, "by_init")
        conn.execute(install(NEWEST, "by_step").encode())
        conn.execute(install(NEWEST, "by_step").encode())
    assert shape(database, "by_step") == shape(database, "by_init")
    assert migrations(database, "by_step") == migrations(database, "by_init")
    put(database, "by_step")


def test_a_statement_for_an_older_version_brings_a_schema_to_the_newest_if_it_is_older(
    database: str, stack: Stack
) -> None:
    role = f"shop_{uuid4().hex[:12]}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role}".encode())
        with psycopg.connect(database) as conn:
            for name in ("shop", "other"):
                conn.execute(old_schemas.script(9, name).encode())
            for version in (9, 12):
                conn.execute(install(version, "shop", roles=Roles(writers=[role])).encode())
                assert schema.version(conn, "shop") == (9 if version == 9 else NEWEST)
            assert schema.version(conn, "other") == 9
            schema.install(conn, "by_init")
            # The roles are granted what they need where the statement has upgraded.
            conn.execute(f"SET LOCAL ROLE {role}".encode())
            write(conn, EVENT, schema="shop")
            conn.execute("RESET ROLE; DROP SCHEMA other CASCADE")
            conn.commit()
            assert shape(database, "shop") == shape(database, "by_init")
            conn.execute("DROP SCHEMA shop, by_init CASCADE")
        admin.execute(f"DROP ROLE {role}".encode())


def test_two_installations_at_once_take_turns(database: str) -> None:
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    failed: list[Exception] = []

    def second() -> None:
        try:
            with psycopg.connect(database) as conn:
                conn.execute(install(NEWEST).encode())
        except psycopg.Error as error:
            failed.append(error)

    with psycopg.connect(database) as first, psycopg.connect(database, autocommit=True) as other:
        first.execute(install(NEWEST).encode())
        thread = threading.Thread(target=second)
        thread.start()
        until(lambda: other.execute(waits).fetchone() == (1,), within=10, what="it waits")
        first.commit()
    thread.join(patient(10))
    assert not failed
    assert installed(database) == NEWEST


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"no version 99 of the outbox's schema; there are \[1"):
        install(99)


def test_every_step_of_the_schema_has_a_migration_of_django() -> None:
    folder = Path(alembic.__file__).parent / "django/migrations"
    files = sorted(path.name for path in folder.glob("0*.py"))
    assert files == [f"{step.version:04d}_{step.name}.py" for step in schema.migrations()]
    for step, file in zip(schema.migrations(), files, strict=True):
        assert f"[InstallOutbox({step.version})]" in (folder / file).read_text()


def test_djangos_migrate_installs_the_outbox_and_takes_it_away(django: str) -> None:
    assert "Applying outbox.0001_events... OK" in migrate()
    assert installed(django) == NEWEST
    put(django)
    assert "No migrations to apply" in migrate()
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    with psycopg.connect(django) as conn:
        conn.execute("TRUNCATE outbox.events")
    with pytest.raises(IrreversibleError, match=f"has no way back to {NEWEST - 1}"):
        migrate("outbox", "zero")
    migrate("--fake", "outbox", "0001")
    migrate("outbox", "zero")
    assert installed(django) == 0


def test_roles_are_granted_what_they_need_by_either_tool(django: str, stack: Stack) -> None:
    role = f"shop_{uuid4().hex[:12]}"
    roles = Roles(writers=[role])
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role}".encode())
        with psycopg.connect(django) as conn:
            conn.execute(install(NEWEST, "shop", roles=roles).encode())
            conn.execute(install(NEWEST, "shop", roles=roles).encode())
        with override_settings(OUTBOX_ROLES=roles):
            migrate()
        with psycopg.connect(django) as conn:
            conn.execute(f"SET ROLE {role}".encode())
            write(conn, EVENT)
            write(conn, EVENT, schema="shop")
            conn.rollback()
            conn.execute("DROP SCHEMA outbox, shop CASCADE")
        admin.execute(f"DROP ROLE {role}".encode())


def test_django_names_roles_that_are_none_before_it_changes_anything(django: str) -> None:
    with (
        override_settings(OUTBOX_ROLES=["shop_writer"]),
        pytest.raises(ImproperlyConfigured, match=r"OUTBOX_ROLES is an outbox\.schema\.Roles"),
    ):
        migrate()
    with psycopg.connect(django) as conn:
        assert conn.execute("SELECT to_regnamespace('outbox')").fetchone() == (None,)


def test_django_keeps_what_init_has_installed(django: str) -> None:
    with psycopg.connect(django) as conn:
        schema.install(conn)
    put(django)
    migrate()
    with psycopg.connect(django) as conn:
        assert conn.execute("SELECT count(*) FROM outbox.events").fetchone() == (1,)


def test_django_takes_no_outbox_away_that_has_events(django: str) -> None:
    migrate("outbox", "0001")
    put(django)
    with pytest.raises(Exception, match="may not be published yet"):
        migrate("outbox", "zero")
    assert installed(django) == NEWEST


def test_djangos_settings_name_the_schema(django: str) -> None:
    with override_settings(OUTBOX_SCHEMA="shop_outbox"):
        migrate()
    assert installed(django, "shop_outbox") == NEWEST
    assert installed(django) == 0


def test_django_prints_the_sql_that_it_would_run(django: str) -> None:
    printed = io.StringIO()
    call_command("sqlmigrate", "outbox", "0001", stdout=printed, no_color=True)
    assert installed(django) == 0
    with psycopg.connect(django, autocommit=True) as conn:
        conn.execute(printed.getvalue().encode())
    assert installed(django) == NEWEST
    put(django)


def as_tenant(dsn: str, tenant: str) -> AbstractContextManager[Any]:
    """As django-tenants does it: each tenant has a table of migrations, on its own path."""
    return django_database(dsn, options=f"-c search_path={tenant},public")


@pytest.mark.parametrize("shared", [[], ["outbox.django"]])
def test_the_outbox_stays_until_the_last_of_several_tenants_has_gone_back(
    database: str, shared: list[str]
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA tenant_a; CREATE SCHEMA tenant_b")
    everyone = ["public", "tenant_a", "tenant_b"]
    with override_settings(SHARED_APPS=shared, TENANT_APPS=["outbox.django"]):
        for tenant in reversed(everyone):  # otherwise they would find the table of public
            # Where the app is not shared, a router keeps it away from public, which notes it.
            routers = [Nowhere()] if tenant == "public" and not shared else []
            with as_tenant(database, tenant), override_settings(DATABASE_ROUTERS=routers):
                migrate()
        for tenant in everyone[not shared :]:
            assert installed(database) == NEWEST
            put(database)
            with psycopg.connect(database) as conn:
                conn.execute("TRUNCATE outbox.events")
            with as_tenant(database, tenant):
                migrate("--fake", "outbox", "0001")
                migrate("outbox", "zero")
    assert installed(database) == 0


def test_an_outbox_that_tenants_share_goes_with_the_shared_app(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA tenant_a")
    with override_settings(SHARED_APPS=["outbox.django"], TENANT_APPS=[]):
        with as_tenant(database, "tenant_a"), override_settings(DATABASE_ROUTERS=[Nowhere()]):
            migrate()
        with as_tenant(database, "public"):
            migrate()
        assert installed(database) == NEWEST
        with as_tenant(database, "public"):
            migrate("--fake", "outbox", "0001")
            migrate("outbox", "zero")
    assert installed(database) == 0


class RenamedOutbox(OutboxConfig):
    """The app in a project that has another one labelled `outbox`."""

    label = "shop_outbox"


def test_a_project_may_give_the_app_another_label(django: str) -> None:
    name = f"{RenamedOutbox.__module__}.{RenamedOutbox.__qualname__}"
    with override_settings(INSTALLED_APPS=[name]):
        assert "Applying shop_outbox.0016_functions... OK" in migrate()
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)
        put(django)
        with psycopg.connect(django) as conn:
            conn.execute("TRUNCATE outbox.events")
        migrate("--fake", "shop_outbox", "0001")
        migrate("shop_outbox", "zero")
    assert installed(django) == 0


class Nowhere:
    """A router that keeps the outbox away from every database."""

    def allow_migrate(self, _db: str, app_label: str, **_hints: Any) -> bool | None:
        return False if app_label == "outbox" else None


def test_djangos_routers_are_asked(django: str) -> None:
    with override_settings(DATABASE_ROUTERS=[Nowhere()]):
        migrate()
    assert installed(django) == 0


def test_django_on_another_database_is_told_of_routers() -> None:
    with (
        django_database("dbname=:memory:", engine="sqlite3"),
        connections["default"].schema_editor() as editor,
        pytest.raises(NotSupportedError, match=r"'default' is sqlite; .* allow_migrate"),
    ):
        InstallOutbox(1).database_forwards("outbox", editor, None, None)


def test_a_later_step_has_no_way_back_in_django(django: str) -> None:
    assert django
    with (
        connections["default"].schema_editor() as editor,
        pytest.raises(IrreversibleError, match="`migrate --fake outbox 0001`, then"),
    ):
        InstallOutbox(2).database_backwards("outbox", editor, None, None)
