"""Tokens of clouds: each is made by the cloud's own library, in the form that its Kafka takes."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from azure import identity as azure_identity
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from outbox.tokens.identity import made
from outbox.tokens.token import Token, TokenRefused, claims


def ask(**table: Any) -> Token:
    found = made(json.dumps(table))()
    assert isinstance(found, Token)
    return found


@contextmanager
def answering(status: int, answer: object) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Serve one answer to every request; yield the address, and the paths and bodies asked."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            asked.append((self.path, self.rfile.read(size).decode()))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # the name that the server asks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the AWS credentials of a profile `orders`, and none besides."""
    file = tmp_path / "credentials"
    file.write_text("[orders]\naws_access_key_id = AKORDERS\naws_secret_access_key = s\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file


def signed(token: Token) -> tuple[str, dict[str, list[str]]]:
    """Return host and parameters of the address that is signed in a token for MSK."""
    padded = token.value + "=" * (-len(token.value) % 4)
    parts = urlparse(base64.urlsafe_b64decode(padded).decode())
    return parts.netloc, parse_qs(parts.query)


def test_msk_gets_a_signed_address_of_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKSHOP")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tops3cret")
    token = ask(provider="aws-msk", region="eu-west-1")
    host, parameters = signed(token)
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert parameters["Action"] == ["kafka-cluster:Connect"]
    assert parameters["X-Amz-Credential"][0].startswith("AKSHOP/")
    assert 800 < token.expires - time.time() <= 900
    assert "tops3cret" not in token.value


def test_a_profile_signs_with_its_own_credentials() -> None:
    _, parameters = signed(ask(provider="aws-msk", region="eu-west-1", profile="orders"))
    assert parameters["X-Amz-Credential"][0].startswith("AKORDERS/")


def test_a_role_is_assumed_under_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    asked: list[tuple[str, ...]] = []

    def by_role(*given: str) -> tuple[str, int]:
        asked.append(given)
        return "signed", int(time.time() + 900) * 1000

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token_from_role_arn", by_role)
    role = "arn:aws:iam::1:role/kafka"
    assert ask(provider="aws-msk", region="eu-west-1", role_arn=role).value == "signed"
    assert asked == [("eu-west-1", role, "dovecote")]


def test_credentials_that_are_not_there_are_a_failure_that_may_pass() -> None:
    with pytest.raises(OSError, match="no AWS credentials"):
        ask(provider="aws-msk", region="eu-west-1")
    with pytest.raises(OSError, match="nobody"):
        ask(provider="aws-msk", region="eu-west-1", profile="nobody")


def test_a_managed_identity_of_azure_asks_the_endpoint_of_its_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        "access_token": "a." + base64.urlsafe_b64encode(b'{"oid":"object-1"}').decode() + ".c",
        "expires_on": str(int(time.time()) + 3600),
        "resource": "https://shop.servicebus.windows.net",
        "token_type": "Bearer",
    }
    with answering(200, given) as (url, asked):
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "secret-of-the-machine")
        scope = "https://shop.servicebus.windows.net/.default"
        token = ask(provider="azure", scope=scope, client_id="user-assigned")
    assert (token.value, token.principal) == (given["access_token"], "object-1")
    assert token.expires == int(given["expires_on"])
    assert "resource=https://shop.servicebus.windows.net" in asked[0][0]
    assert "client_id=user-assigned" in asked[0][0]


class Credential:
    """Stands for a credential of the library, which asks servers on the internet."""

    made: dict[str, Any]
    error: Exception | None = None

    def __init__(self, **given: Any) -> None:
        type(self).made = given

    def get_token(self, scope: str) -> AccessToken:
        if self.error is not None:
            raise self.error
        return AccessToken(f"token for {scope}", int(time.time()) + 3600)


def test_a_client_of_azure_shows_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_identity, "ClientSecretCredential", Credential)
    table = {"tenant_id": "t", "client_id": "c", "client_secret": "tops3cret"}
    more = {"credential": "client_secret", "authority": "login.microsoftonline.us"}
    token = ask(provider="azure", scope="s", **table, **more)
    assert (token.value, token.principal) == ("token for s", "c")
    assert Credential.made == {**table, "authority": "login.microsoftonline.us"}
    for error, kind in (
        (ClientAuthenticationError("AADSTS7000215: invalid\nTrace"), TokenRefused),
        (ServiceRequestError("cannot connect\nTrace"), OSError),
    ):
        monkeypatch.setattr(Credential, "error", error)
        with pytest.raises(kind) as raised:
            ask(provider="azure", scope="s", credential="client_secret", **table)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("workload_identity", "WorkloadIdentityCredential"),
        ("default", "DefaultAzureCredential"),
        ("managed_identity", "ManagedIdentityCredential"),
    ],
)
def test_each_kind_of_credential_is_that_of_the_library(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure_identity, name, Credential)
    assert ask(provider="azure", scope="s", credential=kind).value == "token for s"


def service_account(folder: Path, token_uri: str) -> Path:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "account.json"
    fields = {
        "type": "service_account",
        "client_email": "relay@shop.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "token_uri": token_uri,
    }
    file.write_text(json.dumps(fields))
    return file


@pytest.mark.parametrize("by_default", [True, False])
def test_google_gets_its_access_token_in_an_envelope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_default: bool
) -> None:
    given = {"access_token": "ya29.access", "expires_in": 3600, "token_type": "Bearer"}
    with answering(200, given) as (url, asked):
        file = str(service_account(tmp_path, f"{url}/token"))
        if by_default:
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
        token = ask(provider="google", **({} if by_default else {"credentials_file": file}))
    assert "jwt-bearer" in asked[0][1]
    header, _, inner = token.value.split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {
        "typ": "JWT",
        "alg": "GOOG_OAUTH2_TOKEN",
    }
    assert base64.urlsafe_b64decode(inner + "==") == b"ya29.access"
    told = claims(token.value)
    assert (told["iss"], told["scope"]) == ("Google", "kafka")
    assert told["sub"] == token.principal == "relay@shop.iam.gserviceaccount.com"
    assert told["exp"] == token.expires == pytest.approx(time.time() + 3600, abs=60)


def test_google_without_credentials_and_with_refused_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))
    with pytest.raises(TokenRefused, match=r"nowhere\.json"):
        ask(provider="google")
    with answering(400, {"error": "invalid_grant"}) as (url, _):
        file = str(service_account(tmp_path, f"{url}/token"))
        with pytest.raises(TokenRefused, match="invalid_grant"):
            ask(provider="google", credentials_file=file)
