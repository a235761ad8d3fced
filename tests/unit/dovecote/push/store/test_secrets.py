"""Secrets are sealed with the newest key, read with any key, and looked up only where allowed."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import ValidationError

from dovecote.push.errors import RequestRefused
from dovecote.push.rules.subscription.subscription import problems, subscription
from dovecote.push.store.secrets import Keys, References
from outbox import BadSettings

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
V1 = "whsec_" + "A" * 32


def described(secret: str, header: str = "plain") -> dict[str, Any]:
    return {
        "id": "a",
        "topics": ["t"],
        "endpoint": {"url": "https://x.example", "headers": {"X-Key": header}},
        "signing": {"secrets": [secret]},
    }


def test_what_is_sealed_is_read_by_who_has_the_key() -> None:
    sealed = Keys(OLD).seal("hidden")
    assert "hidden" not in sealed
    assert Keys(f"{NEW} {OLD}").unseal(sealed) == "hidden"
    with pytest.raises(ValueError, match=r"not in secrets\.keys"):
        Keys(NEW).unseal(sealed)
    with pytest.raises(ValueError, match=r"not in secrets\.keys"):
        Keys("").unseal(sealed)


def test_the_newest_key_seals() -> None:
    keys = Keys(f"{NEW}\n{OLD}\n")
    assert keys.is_current(keys.seal("x"))
    assert Keys(NEW).unseal(keys.seal("x")) == "x"
    assert not keys.is_current(Keys(OLD).seal("x"))
    assert not Keys("").is_current("x")


def test_without_a_key_nothing_is_kept() -> None:
    with pytest.raises(RequestRefused, match="dovecote push key"):
        Keys("").seal("x")


def test_a_key_that_is_none_is_a_bad_setting_and_is_not_shown() -> None:
    with pytest.raises(BadSettings, match="Fernet") as caught:
        Keys("short-secret")
    assert "short-secret" not in str(caught.value)


def test_references_are_looked_up_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"{V1}\n")
    found = References({"P_TOKEN": "t"}, "P_", tmp_path)
    resolved = found.resolved(subscription(described("file:hook", "env:TOKEN")))
    assert resolved.signing is not None
    assert resolved.signing.secrets[0].get_secret_value() == V1
    assert resolved.endpoint.headers["X-Key"].get_secret_value() == "t"
    assert found.resolved(subscription(described(V1))) == subscription(described(V1))


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ("env:PATH", "P_PATH is not set"),
        ("file:../hook", "without its directory"),
        ("file:/etc/passwd", "without its directory"),
        ("file:missing", "No such file"),
        ("file:weak", "whsec_"),
    ],
)
def test_what_is_not_there_is_said_with_its_place(tmp_path: Path, secret: str, words: str) -> None:
    (tmp_path / "weak").write_text("not a key")
    (tmp_path.parent / "hook").write_text(V1)
    with pytest.raises(ValidationError) as caught:
        References({"PATH": "/"}, "P_", tmp_path).resolved(subscription(described(secret)))
    assert words in json.dumps(problems(caught.value))


def test_without_a_directory_there_are_no_files() -> None:
    with pytest.raises(ValidationError, match=r"secrets\.directory"):
        References({}, "P_", None).resolved(subscription(described("file:hook")))
