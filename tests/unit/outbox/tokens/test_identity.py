"""The table `[kafka.identity]`: what it takes, and how it refuses what cannot work."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovecote.process.settings.loading import load
from outbox.errors import BadSettings
from outbox.tokens.identity import described, encoded, made, require_fit, secrets_of
from outbox.tokens.source import for_check, refreshed
from relay.kafka.properties import check_properties
from relay.settings import RelaySettings

OIDC = {
    "provider": "oidc",
    "token_url": "https://id.example.com/token",
    "client_id": "relay",
    "client_secret": "tops3cret",
}


def settings(folder: Path, text: str, **environ: str) -> RelaySettings:
    file = folder / "relay.toml"
    file.write_text(f'dsn = "dbname=shop"\n[kafka]\n"bootstrap.servers" = "localhost:1"\n{text}')
    return load(RelaySettings, file, prefix="DOVECOTE_RELAY", environ=environ)


TABLE = """[kafka.identity]
provider = "oidc"
token_url = "https://id.example.com/token"
client_id = "relay"
client_secret = { env = "SECRET" }
scope = ["kafka.read", "kafka.write"]
extensions = { logicalCluster = "lkc-1" }
"""


MSK = '[kafka.identity]\nprovider = "aws-msk"\nregion = "eu-west-1"\n'
AZURE = '[kafka.identity]\nprovider = "azure"\nscope = "s"\n'


def test_a_table_is_a_property_that_can_travel(tmp_path: Path) -> None:
    found = json.loads(settings(tmp_path, TABLE, SECRET="tops3cret").kafka["identity"])  # noqa: S106  # of this test
    assert found["client_secret"] == "tops3cret"  # noqa: S105  # as above
    assert found["scope"] == "kafka.read kafka.write"
    assert found["extensions"] == {"logicalCluster": "lkc-1"}


def test_variables_say_the_same(tmp_path: Path) -> None:
    prefix = "DOVECOTE_RELAY_KAFKA__IDENTITY"
    one_by_one = {f"{prefix}__{name.upper()}": value for name, value in OIDC.items()}
    one_by_one[f"{prefix}__EXTENSIONS"] = '{"logicalCluster": "lkc-1"}'
    whole = {prefix: json.dumps({**OIDC, "extensions": {"logicalCluster": "lkc-1"}})}
    found = [settings(tmp_path, "", **each).kafka["identity"] for each in (one_by_one, whole)]
    assert found[0] == found[1] == encoded({**OIDC, "extensions": {"logicalCluster": "lkc-1"}})


def test_a_secret_in_a_file_and_a_whole_table_in_a_file_are_read_again(tmp_path: Path) -> None:
    secret, whole = tmp_path / "secret", tmp_path / "identity.json"
    secret.write_text("one")
    whole.write_text(encoded({**OIDC, "client_secret": "one"}))
    by_field = TABLE.replace('{ env = "SECRET" }', f'{{ file = "{secret}" }}')
    for text in (by_field, f'identity = {{ file = "{whole}" }}'):
        found = settings(tmp_path, text)
        assert json.loads(found.kafka["identity"])["client_secret"] == "one"  # noqa: S105  # as above
        kept = found.producer_properties("any")
        secret.write_text("two")
        whole.write_text(encoded({**OIDC, "client_secret": "two"}))
        for properties in (found.kafka, kept, refreshed(kept)):
            again = properties["identity"].again()  # type: ignore[union-attr]  # it is a `Reread`
            assert json.loads(again)["client_secret"] == "two"  # noqa: S105  # of this test
        secret.write_text("one")
        whole.write_text(encoded({**OIDC, "client_secret": "one"}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('identity = "x"', "identity must be a table"),
        ("identity = 5", "identity must be a table"),
        ("[kafka.identity]", '"provider" is missing: oidc, aws-msk, azure, google'),
        ('[kafka.identity]\nprovider = "okta"', "there is no provider 'okta': oidc"),
        (
            '[kafka.identity]\nprovider = "oidc"',
            "missing for the provider oidc: token_url, client",
        ),
        (TABLE.replace("{ env =", "").replace('"SECRET" }', '"x"'), "client_secret is a secret"),
        (TABLE.replace("SECRET", "NONE"), "client_secret: environment variable NONE is not set"),
        (TABLE.replace("https", "http"), "token_url must begin with https://"),
        (TABLE.replace("https://", "id:"), "is no address"),
        (TABLE + 'ca_file = "/nowhere.pem"', "ca_file /nowhere.pem: No such file"),
        (TABLE + 'auth = "jwt"', "auth 'jwt' is neither"),
        (TABLE + "client = 5", "client: there is no such setting of the provider oidc"),
        (TABLE + "parameters = 5", "parameters must be a table"),
        (TABLE + "parameters = { audience = 5 }", "parameters.audience must be text"),
        (TABLE.replace("logicalCluster", "a-b"), "extension 'a-b'"),
        (TABLE.replace("{ logicalCluster", "{ auth"), "extension 'auth'"),
        (TABLE.replace('"relay"', "5"), "client_id must be text"),
        ('"security.protocol" = "SSL"\n' + TABLE, "security.protocol ssl sends no token"),
        ('"sasl.mechanism" = "PLAIN"\n' + TABLE, "and not with PLAIN"),
        ('"sasl.username" = "me"\n' + TABLE, "sasl.username: identity takes the place"),
        ('"sasl.mechanism" = "OAUTHBEARER"', "add a table [kafka.identity]"),
        ('[kafka.identity]\nprovider = "aws-msk"', "missing for the provider aws-msk: region"),
        (
            f'{MSK}role_arn = "a"\nprofile = "b"',
            "role_arn and profile exclude each other",
        ),
        (
            f'{MSK}session_name = "a"',
            "set role_arn too",
        ),
        (
            '[kafka.identity]\nprovider = "azure"\nscope = "s"\ncredential = "password"',
            "credential 'password' is none of managed_identity",
        ),
        (
            '[kafka.identity]\nprovider = "azure"\nscope = "s"\ncredential = "client_secret"',
            "missing for credential = 'client_secret': tenant_id, client_id, client_secret",
        ),
        (
            '[kafka.identity]\nprovider = "azure"\nscope = "s"\ntenant_id = "t"',
            "tenant_id is not for a managed identity",
        ),
        (
            f'{AZURE}client_secret = {{ env = "SECRET" }}',
            "client_secret belongs to credential = 'client_secret'",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line_without_the_secret(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        settings(tmp_path, text, SECRET="tops3cret")  # noqa: S106  # of this test
    (line,) = str(refused.value).splitlines()[1:]
    assert says in line
    assert "tops3cret" not in line
    assert "(set by SECRET)" not in line


def test_properties_of_its_own_are_left_to_the_client() -> None:
    require_fit({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"})
    require_fit({"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "x"})


def test_the_client_takes_the_properties_that_an_identity_makes(tmp_path: Path) -> None:
    found = settings(tmp_path, TABLE, SECRET="x").producer_properties("any")  # noqa: S106  # of this test
    check_properties(found)
    made_of = for_check(found)
    assert made_of["security.protocol"] == "SSL"
    assert not {"identity", "sasl.mechanism"} & made_of.keys()
    check_properties({**found, "sasl.mechanism": "OAUTHBEARER"})
    with pytest.raises(BadSettings, match=r"ssl\.ca\.location"):
        check_properties({**found, "ssl.ca.location": "/nowhere.pem"})


@pytest.mark.parametrize("extra", ["aws", "azure", "google"])
def test_a_library_that_is_missing_is_named_with_its_extra(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, table = {
        "aws": ("aws_msk_iam_sasl_signer", {"provider": "aws-msk", "region": "eu-west-1"}),
        "azure": ("azure.core.exceptions", {"provider": "azure", "scope": "s"}),
        "google": ("google.auth", {"provider": "google"}),
    }[extra]
    for loaded in [each for each in sys.modules if each.partition(".")[0] == module.split(".")[0]]:
        monkeypatch.delitem(sys.modules, loaded)

    class Missing:
        def find_spec(self, name: str, *_: object) -> None:
            if name == module:
                msg = f"No module named {name!r}"
                raise ModuleNotFoundError(msg, name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(ValueError, match=r"needs .*: pip install 'dovecote\[" + extra):
        encoded(table)


PROVIDER = """
def whole(options):
    team = options["team"]
    return lambda: ("token of " + team, 4_000_000_000.0, "shop", {"pool": "a"})
def no_function(options):
    return "a token"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a package that declares a provider."""

    def installed(name: str, place: str) -> None:
        (tmp_path / "shop_tokens.py").write_text(PROVIDER)
        about = tmp_path / "shop_tokens-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-tokens\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[dovecote.token_providers]\n{name} = {place}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return installed


def test_a_package_may_declare_a_provider(install: Callable[[str, str], None]) -> None:
    install("vault", "shop_tokens:whole")
    ask: Any = made(encoded({"provider": "vault", "team": "orders"}))
    assert ask()[0] == "token of orders"
    with pytest.raises(ValueError, match="oidc, aws-msk, azure, google, vault, or one that"):
        encoded({"provider": "volt"})
    with pytest.raises(ValueError, match="vault does not take these settings: KeyError: 'team'"):
        encoded({"provider": "vault"})


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("shop_tokens:no_function", "returns no function"),
        ("shop_tokens:nothing", "cannot be loaded from shop_tokens:nothing"),
        ("no_such_module:whole", "cannot be loaded from no_such_module:whole"),
    ],
)
def test_a_provider_that_is_none_is_refused(
    install: Callable[[str, str], None], place: str, says: str
) -> None:
    install("vault", place)
    with pytest.raises(ValueError, match=says):
        encoded({"provider": "vault"})


def test_a_table_is_described_without_its_secrets() -> None:
    text = encoded(OIDC)
    assert described(text) == "oidc https://id.example.com/token"
    assert secrets_of(text) == ["tops3cret"]
