"""The advice about a missing outbox, or about rights in it, can be pasted as it is."""

import re
from pathlib import Path

import pytest

import outbox
from dedup.inbox import schema as inbox_schema
from outbox import schema
from outbox.event import Limits
from outbox.schema.steps import uninstall
from outbox.writing.append import Append

# Where SQL of ours is.
PARTS = ("outbox/schema", "dedup/inbox", "dovecote/push")


class _Missing(Exception):
    sqlstate = "3F000"


@pytest.mark.parametrize(
    ("name", "place"),
    [("outbox", ""), ("outboxx", " --schema outboxx"), ("my box", " --schema 'my box'")],
)
def test_commands_name_the_schema_unless_it_is_the_usual_one(name: str, place: str) -> None:
    command = f"dovecote init outbox{place}"
    both = f"run `{command}`, or apply what `{command} --print-sql` shows"
    assert schema.installing(name) == both
    refused = Append([], name, Limits()).explained(_Missing(), database="shop")
    assert str(refused) == f"the outbox is not installed in schema {name!r} of 'shop'; {both}"
    assert f"`dovecote init outbox --capture table{place}`" in uninstall(name)
    granting = f"run `dovecote init outbox --relay-role app{place}` as its owner"
    assert schema.advice("relay", "app", name) == granting
    said = "`dovecote init outbox --capture wal`; `dovecote relay run`"
    assert schema.about(name, said) == f"`{command} --capture wal`; `dovecote relay run`"
    assert schema.about(name, f"`{command}`") == f"`{command}`"


def test_who_may_not_consume_is_told_a_command_that_a_shell_takes() -> None:
    said = str(inbox_schema.not_allowed("two words", "my box"))
    assert "`dovecote init inbox --schema 'my box' --consumer-role 'two words'`" in said
    assert "--schema" not in str(inbox_schema.not_allowed("billing", "inbox"))


def test_no_sql_is_made_from_what_the_server_says_of_a_function() -> None:
    root = Path(outbox.__file__).parents[1]
    scripts = [path for part in PARTS for path in root.glob(f"{part}/sql/**/*.sql")]
    lines = [line.strip() for path in scripts for line in path.read_text().splitlines()]
    assert not [
        line for line in lines if "pg_get_functiondef" in line or "EXECUTE replace" in line
    ]
    # The one that is left makes the secret of the log.
    assert [line for line in lines if "replace(" in line] == [
        "prefix text NOT NULL DEFAULT 'dovecote/' || replace(gen_random_uuid()::text, '-', '')"
    ]


def test_a_function_is_made_in_a_file_of_its_name_and_nowhere_else() -> None:
    root = Path(outbox.__file__).parents[1]
    settings = {"writes_to_wal", "max_event_bytes", "restricts_topics", "claims_setting"}
    for path in (path for part in PARTS for path in root.glob(f"{part}/sql/**/*.sql")):
        made = set(
            re.findall(r"CREATE (?:OR REPLACE )?FUNCTION \{schema\}\.(\w+)", path.read_text())
        )
        assert made == {path.stem} if path.parent.name == "functions" else made <= settings, path


@pytest.mark.parametrize("folder", ["outbox/schema/sql", "dedup/inbox/sql", "dovecote/push/sql"])
def test_the_statements_of_a_schema_suit_a_database_of_any_encoding(folder: str) -> None:
    files = sorted((Path(__file__).parents[3] / folder).rglob("*.sql"))
    assert files
    assert [each.name for each in files if not each.read_text(encoding="utf-8").isascii()] == []
