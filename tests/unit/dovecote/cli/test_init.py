"""The commands of `dovecote init`: the SQL that they print needs no database."""

from unittest.mock import MagicMock, Mock

import psycopg
import pytest
from typer.testing import CliRunner

import outbox.schema.capture
from dedup.inbox import schema as inbox_schema
from dovecote.cli.main import app
from outbox import BadSettings, DovecoteError, schema
from outbox.postgres import session


def test_the_sql_is_printed_without_a_database() -> None:
    shown = CliRunner().invoke(app, ["init", "outbox", "--print-sql"])
    assert shown.exit_code == 0
    assert shown.output == schema.script()


def test_the_sql_is_for_the_schema_asked_for() -> None:
    shown = CliRunner().invoke(app, ["init", "outbox", "--print-sql", "--schema", 'My "Box"'])
    assert 'CREATE TABLE "My ""Box""".events' in shown.output
    assert "{schema}" not in shown.output


def test_since_leaves_out_what_is_there() -> None:
    newest = schema.migrations()[-1].version
    shown = CliRunner().invoke(app, ["init", "outbox", "--print-sql", "--since", str(newest)])
    assert "CREATE FUNCTION" not in shown.output


def test_since_a_version_that_is_not_there_is_refused() -> None:
    newest = schema.migrations()[-1].version
    refused = CliRunner().invoke(
        app, ["init", "outbox", "--print-sql", "--since", str(newest + 1)]
    )
    assert isinstance(refused.exception, BadSettings)
    assert str(newest) in str(refused.exception)
    assert refused.output == ""


@pytest.mark.parametrize("arguments", [["--since", "-1"], ["--unknown"], ["--since", "x"]])
def test_bad_usage_is_told_by_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["init", "outbox", *arguments]).exit_code == 2


def test_a_schema_that_cannot_be_is_refused() -> None:
    refused = CliRunner().invoke(app, ["init", "outbox", "--print-sql", "--schema", "50%"])
    assert isinstance(refused.exception, BadSettings)


@pytest.mark.parametrize("dsn", ["password=two tops3cret words", "postgresql://u:%zztops3cret@h/"])
def test_a_connection_string_that_cannot_be_read_is_not_quoted(dsn: str) -> None:
    refused = CliRunner().invoke(app, ["init", "outbox", "--dsn", dsn])
    assert isinstance(refused.exception, BadSettings)
    assert "tops3cret" not in str(refused.exception)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (["--dsn", "host=h"], "is --dsn or DOVECOTE_DSN right?"),
        ([], "give --dsn or set DOVECOTE_DSN"),
    ],
)
def test_a_database_out_of_reach_says_in_one_line_what_to_give(
    given: list[str], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = psycopg.OperationalError("connection refused\n\tIs the server running?")
    monkeypatch.setattr(psycopg.Connection, "connect", Mock(side_effect=refused))
    monkeypatch.delenv("DOVECOTE_DSN", raising=False)
    failed = CliRunner().invoke(app, ["init", "outbox", *given])
    assert isinstance(failed.exception, DovecoteError)
    assert str(failed.exception) == f"cannot connect: connection refused; {advice}"


@pytest.mark.parametrize("capture", [[], ["--capture", "wal"]])
def test_what_fails_behind_the_connection_is_not_said_to_be_the_connection(
    capture: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Mock(side_effect=psycopg.errors.DeadlockDetected("deadlock detected\nDETAIL: …"))
    connect = MagicMock()
    connect.return_value.info.dsn = "host=h"
    connect.return_value.info.backend_pid = 7
    connect.return_value.execute.return_value.fetchone.return_value = (7,)
    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    monkeypatch.setattr(session, "cursor", lambda conn: conn)
    monkeypatch.setattr(schema, "install", Mock(return_value=[]) if capture else failure)
    monkeypatch.setattr(outbox.schema.capture, "use_wal", failure)
    failed = CliRunner().invoke(app, ["init", "outbox", "--dsn", "host=h", *capture])
    assert isinstance(failed.exception, DovecoteError)
    assert str(failed.exception).startswith("Postgres: deadlock detected; run the same command")


def test_since_without_the_sql_that_it_shortens_is_refused() -> None:
    refused = CliRunner().invoke(app, ["init", "outbox", "--dsn", "host=h", "--since", "3"])
    assert isinstance(refused.exception, BadSettings)
    assert "--since goes with --print-sql" in str(refused.exception)


def test_the_sql_of_the_inbox_is_printed_with_the_rights_of_its_roles() -> None:
    shown = CliRunner().invoke(app, ["init", "inbox", "--print-sql", "--consumer-role", "bill"])
    assert shown.exit_code == 0
    assert shown.output == inbox_schema.script(consumers=["bill"])
    assert 'CREATE TABLE "inbox".handled' in shown.output
    assert 'TO "bill"' in shown.output


@pytest.mark.parametrize(
    "part",
    [
        ["inbox", "--relay-role", "r"],
        ["inbox", "--capture", "wal"],
        ["push", "--consumer-role", "bill"],
        ["outbox", "--consumer-role", "bill"],
    ],
)
def test_each_part_has_options_of_its_own(part: list[str]) -> None:
    refused = CliRunner().invoke(app, ["init", *part])
    assert refused.exit_code == 2
    assert f"No such option: {part[1]}" in refused.output
