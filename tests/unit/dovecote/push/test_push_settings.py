"""Settings of push: few are needed, and nobody is let in by mistake."""

from pathlib import Path

import pytest

from dovecote.process.settings import load
from dovecote.push.settings import PREFIX, PushSettings
from outbox import BadSettings

HASH = "sha256:" + "a" * 64


def settings(tmp_path: Path, toml: str = "", tables: str = "", **environ: str) -> PushSettings:
    file = tmp_path / "push.toml"
    file.write_text(
        f'dsn = "host=h"\n{toml}\n[brokers.default]\n"bootstrap.servers" = "b:9092"\n{tables}\n'
    )
    return load(PushSettings, file, prefix=PREFIX, environ=environ)


def test_little_needs_to_be_said(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert (found.http.host, found.http.port, found.schema_name) == ("127.0.0.1", 8080, "push")
    assert found.brokers == {"default": {"bootstrap.servers": "b:9092"}}
    assert found.allow_addresses == ()


def test_every_setting_is_a_variable(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        tables='[secrets]\nkeys = { env = "KEYS" }',
        KEYS="k",
        DOVECOTE_PUSH_HTTP__PORT="9",
        DOVECOTE_PUSH_BROKERS__EAST__BOOTSTRAP_SERVERS="e:9092",
        DOVECOTE_PUSH_BROKERS__EAST__SASL_PASSWORD="p",  # noqa: S106  # to be hidden
        DOVECOTE_PUSH_API__TOKENS__OPS=HASH,
        DOVECOTE_PUSH_ALLOW_ADDRESSES='["10.0.0.0/8", "::1/128"]',
    )
    assert (found.http.port, found.secrets.keys) == (9, "k")
    assert found.brokers["east"] == {"bootstrap.servers": "e:9092", "sasl.password": "p"}
    assert found.api.tokens == {"ops": HASH}
    assert found.allow_addresses == ("10.0.0.0/8", "::1/128")
    assert "sasl" not in repr(found)
    assert "keys" not in repr(found)


@pytest.mark.parametrize(
    ("toml", "tables", "words"),
    [
        ("", '[http]\nhost = "0.0.0.0"', "api.tokens"),
        ("", '[api.tokens]\nops = "secret"', "sha256:"),
        ("", f'[api]\ntoken_file = "t"\n[api.tokens]\nops = "{HASH}"', "one of the two"),
        ("", '[http]\nhosts = ["https://push.example"]', "write a name alone"),
        ("", '[http]\nhosts = ["push.example:443"]', "write a name alone"),
        ("", '[secrets]\nkeys = "inline"', "env ="),
        ("", '[secrets]\nenvironment = ""', "every variable"),
        ("", "[brokers.other]\n", "bootstrap.servers"),
        ("", '[brokers."a b"]\n"bootstrap.servers" = "x"', "no name for a broker"),
        ("", '[brokers.x]\n"bootstrap.servers" = "x"\n"sasl.password" = "p"', "is a secret"),
        ('allow_addresses = ["x"]', "", "allow_addresses"),
        ('allow_addresses = ["10.0.0.1/8"]', "", "write a network, such as 10.0.0.0/8"),
        ('poll = "0s"', "", "longer than 0"),
        ("colour = 1", "", "no such setting"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_file(
    tmp_path: Path, toml: str, tables: str, words: str
) -> None:
    with pytest.raises(BadSettings, match=words.replace(".", r"\.")) as caught:
        settings(tmp_path, toml, tables)
    assert "inline" not in str(caught.value)


def test_beyond_loopback_there_are_tokens(tmp_path: Path) -> None:
    tables = f'[http]\nhost = "0.0.0.0"\n[api.tokens]\nops = "{HASH}"'
    assert settings(tmp_path, tables=tables).http.host == "0.0.0.0"  # noqa: S104  # guarded
    for host in ("127.0.0.2", "::1", "localhost"):
        assert settings(tmp_path, tables=f'[http]\nhost = "{host}"').http.host == host
    tables = '[http]\nhost = "0.0.0.0"\n[api]\ntoken_file = "made-at-the-first-start"'
    assert settings(tmp_path, tables=tables).api.token_file == Path("made-at-the-first-start")
