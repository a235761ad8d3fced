"""Commands take what a shell gives: users without a name, and keys that are no text."""

import os
import socket

import pytest

from dovecote.cli.consume.skip import who
from dovecote.cli.dead.filters import selected


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no name")])
def test_a_user_without_a_name_is_a_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", nameless)
    assert who() == f"uid {os.getuid()}@{socket.gethostname()}"


def test_a_key_may_have_any_bytes() -> None:
    others = dict.fromkeys(["part", "topic", "type_", "reason", "since", "until", "where"])
    found = selected(key=os.fsdecode(b"k\xff"), **others)  # type: ignore[arg-type]  # none is given
    assert found.key == b"k\xff"
