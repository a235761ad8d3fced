"""Writing events in the tests of a Django project."""

import unittest
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.test.utils import (
    override_settings,
    setup_test_environment,
    teardown_test_environment,
)

from outbox import NoTransaction, write
from outbox.django.apps import forget_events
from tests.support.fix_django import django_database
from tests.support.migrating import EVENT, put


@pytest.fixture
def project(database: str) -> Iterator[str]:
    """A migrated database, in a project that runs its tests."""
    apps = ["outbox.django", "django.contrib.contenttypes"]
    with django_database(database), override_settings(INSTALLED_APPS=apps):
        call_command("migrate", verbosity=0)
        setup_test_environment()
        try:
            yield database
        finally:
            teardown_test_environment()


def run(case: type[unittest.TestCase]) -> list[str]:
    """Run a project's tests, and return what failed."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun > 0
    return [text for _, text in (*result.failures, *result.errors)]


def events(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT count(*) FROM outbox.events").fetchall()
    return int(rows[0][0])


class InTestCase(TestCase):  # type: ignore[misc]  # Django ships no types
    """A project's tests of one transaction each."""

    __test__ = False  # for `run` alone

    def test_without_a_block_of_its_own(self) -> None:
        with pytest.raises(NoTransaction, match=r"but that of a TestCase.*open `with trans"):
            write(connection, EVENT)

    def test_with_one(self) -> None:
        with transaction.atomic():
            write(connection, EVENT)


def test_the_block_of_a_testcase_is_not_taken_for_the_services(project: str) -> None:
    assert run(InTestCase) == []
    assert events(project) == 0


def test_without_autocommit_the_block_of_a_testcase_is_as_good_as_any(project: str) -> None:
    class Case(TestCase):  # type: ignore[misc]  # Django ships no types
        def test_it(self) -> None:
            write(connection, EVENT)

    connection.settings_dict["AUTOCOMMIT"] = False
    assert run(Case) == []
    assert events(project) == 0


class Commits(TransactionTestCase):  # type: ignore[misc]  # Django ships no types
    """A project's tests that commit, each of which expects an empty outbox."""

    __test__ = False  # for `run` alone

    def test_one(self) -> None:
        assert count() == 0
        with transaction.atomic():
            write(connection, EVENT)

    test_two = test_one


def count() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM outbox.events")
        return cursor.fetchone()[0]


def test_a_transactiontestcase_leaves_no_events_to_the_next_test(project: str) -> None:
    assert run(Commits) == []
    assert events(project) == 0


def test_where_django_signals_no_flush_a_test_forgets_its_events_itself(project: str) -> None:
    class Case(Commits):
        available_apps = ("django.contrib.contenttypes",)

        def tearDown(self) -> None:
            forget_events()

    assert run(Case) == []
    assert events(project) == 0


def test_outside_of_tests_no_flush_and_no_migration_deletes_events(database: str) -> None:
    apps = ["outbox.django", "django.contrib.contenttypes"]
    with django_database(database), override_settings(INSTALLED_APPS=apps):
        call_command("migrate", verbosity=0)
        put(database)
        call_command("flush", verbosity=0, interactive=False)
        call_command("migrate", verbosity=0)
    assert events(database) == 1


def test_a_migration_in_tests_deletes_no_events(project: str) -> None:
    put(project)
    call_command("migrate", verbosity=0)
    assert events(project) == 1


def test_without_an_outbox_there_is_nothing_to_forget(database: str) -> None:
    with django_database(database):
        forget_events()
