"""The advice about a missing outbox, or about rights in it, can be pasted as it is."""

import pytest

from dedup import inbox_schema
from outbox import schema
from outbox.adapters.append import Append
from outbox.event import Limits
from outbox.steps import uninstall


class _Missing(Exception):
    sqlstate = "3F000"


@pytest.mark.parametrize(
    ("name", "place"),
    [("outbox", ""), ("outboxx", " --schema outboxx"), ("my box", " --schema 'my box'")],
)
def test_commands_name_the_schema_unless_it_is_the_usual_one(name: str, place: str) -> None:
    command = f"dovecote init{place}"
    both = f"run `{command}`, or apply what `{command} --print-sql` shows"
    assert schema.installing(name) == both
    refused = Append([], name, Limits()).explained(_Missing(), database="shop")
    assert str(refused) == f"the outbox is not installed in schema {name!r} of 'shop'; {both}"
    assert f"`dovecote init --capture table{place}`" in uninstall(name)
    granting = f"run `dovecote init --relay-role app{place}` as its owner"
    assert schema.advice("relay", "app", name) == granting
    said = "`dovecote init --capture wal`; `dovecote relay`"
    assert schema.about(name, said) == f"`{command} --capture wal`; `dovecote relay`"
    assert schema.about(name, f"`{command}`") == f"`{command}`"


def test_who_may_not_consume_is_told_a_command_that_a_shell_takes() -> None:
    said = str(inbox_schema.not_allowed("two words", "my box"))
    assert "`dovecote init --inbox --schema 'my box' --consumer-role 'two words'`" in said
    assert "--schema" not in str(inbox_schema.not_allowed("billing", "inbox"))
