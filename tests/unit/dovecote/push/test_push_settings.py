"""Settings of push: few are needed, and nobody is let in by mistake."""

from pathlib import Path

import pytest

from dovecote.process.settings.loading import load
from dovecote.push.rules.access.scope import everything
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
    assert found.api.scopes() == [(HASH, everything("ops"))]
    assert found.allow_addresses == ("10.0.0.0/8", "::1/128")
    assert "sasl" not in repr(found)
    assert "keys" not in repr(found)


@pytest.mark.parametrize(
    ("toml", "tables", "words"),
    [
        ("", '[http]\nhost = "0.0.0.0"', "api.tokens"),
        ("", '[api.tokens]\nops = "secret"', "sha256:"),
        ("", '[api.tokens.shop]\nsha256 = "secret"', "sha256:"),
        ("", '[api.tokens.shop]\nrights = ["read"]', "sha256: is missing"),
        ("", f'[api.tokens.shop]\nsha256 = "{HASH}"\nrights = ["all"]', "'read', 'write'"),
        ("", f'[api.tokens.shop]\nsha256 = "{HASH}"\ntopics = ["a*b"]', "is neither a name"),
        ("", f'[api.tokens.shop]\nsha256 = "{HASH}"\ntopics = "a"', "must be a list"),
        ("", f'[api.tokens.shop]\nsha256 = "{HASH}"\nendpoints = ["hooks"]', "or a URL such as"),
        ("", f'[api.tokens.shop]\nsha256 = "{HASH}"\ncolour = 1', "no such setting"),
        ("", f'[api.tokens]\n"a b" = "{HASH}"', "no name for a token"),
        ("", f'[api.tokens.a]\nsha256 = "{HASH}"\nowner = "*"', "no name for an owner"),
        ("", f'[api.tokens]\na = "{HASH}"\nb = "{HASH}"', "have the same token"),
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


LIMITED = """
[api.tokens]
ops = "{one}"
[api.tokens.shop]
sha256 = {{ env = "SHOP" }}
rights = ["read", "write"]
topics = ["orders*"]
[api.tokens.ci]
sha256 = "{three}"
owner = "shop"
[api.tokens.till]
sha256 = "{four}"
ids = ["till", "till-*"]
"""


def hash_of(digit: str) -> str:
    return "sha256:" + digit * 64


def test_a_token_may_do_what_its_table_says_and_without_a_table_everything(tmp_path: Path) -> None:
    tables = LIMITED.format(one=hash_of("1"), three=hash_of("3"), four=hash_of("4"))
    given = {"SHOP": hash_of("2"), "DOVECOTE_PUSH_API__TOKENS__TILL__TOPICS": '["tills"]'}
    found = settings(tmp_path, tables=tables, **given).api
    by_hash = dict(found.scopes())
    ops, shop, ci, till = (by_hash[hash_of(digit)] for digit in "1234")
    assert ops == everything("ops")
    assert (shop.owner, shop.ids, shop.topics) == ("shop", ("shop.*",), ("orders*",))
    assert (shop.rights, shop.brokers) == (frozenset({"read", "write"}), ("default",))
    assert not shop.sees_all
    assert (ci.owner, ci.rights) == ("shop", frozenset({"read"}))
    assert ci.topics == ci.groups == ci.dead_letter_topics == ci.secrets == ci.endpoints == ()
    assert (till.ids, till.topics) == (("till", "till-*"), ("tills",))
    assert {owner for owner, _ in found.owned_ids()} == {"shop", "till"}


@pytest.mark.parametrize("ids", ['["shop.*"]', '["shop.x"]', '["s*"]', '["*"]'])
def test_tokens_of_different_owners_do_not_share_ids(tmp_path: Path, ids: str) -> None:
    tables = f"""
[api.tokens.shop]
sha256 = "{hash_of("1")}"
[api.tokens.till]
sha256 = "{hash_of("2")}"
ids = {ids}
"""
    with pytest.raises(BadSettings, match="shop and till have different owners"):
        settings(tmp_path, tables=tables)
    seeing = tables.replace("ids =", 'subscriptions = "all"\nids =')
    assert settings(tmp_path, tables=seeing).api.owned_ids() == [("shop", ("shop.*",))]
