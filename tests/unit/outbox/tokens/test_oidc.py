"""Tokens of an OpenID Connect provider: how it is asked, and what counts as an answer."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.tokens.identity import made
from outbox.tokens.token import Token, TokenRefused, claims
from proof.identities.provider import CLIENT, SECRET, Provider
from tests.support.certificates import certificates


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(60) as running:
        yield running


def ask(provider: Provider, **changed: Any) -> Token:
    found = made(json.dumps(provider.table(**changed)))()
    assert isinstance(found, Token)
    return found


@pytest.mark.parametrize("method", ["basic", "post"])
def test_a_client_shows_its_secret_in_either_way(provider: Provider, method: str) -> None:
    extensions = {"logicalCluster": "lkc-1"}
    began = time.time()
    token = ask(
        provider, auth=method, extensions=extensions, parameters={"audience": "https://kafka"}
    )
    assert began + 59 <= token.expires <= time.time() + 60
    assert (token.principal, token.extensions) == (CLIENT, extensions)
    assert claims(token.value)["aud"] == "kafka"
    (asked,) = provider.asked
    assert asked.form["grant_type"] == "client_credentials"
    assert asked.form["scope"] == "kafka.write kafka.read"
    assert asked.form["audience"] == "https://kafka"
    assert (SECRET in asked.form.values()) == (method == "post")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (
            401,
            b'{"error": "invalid_client", "error_description": "no\\nsuch"}',
            "invalid_client: no s",
        ),
        (400, b'{"error": "invalid_scope"}', "HTTP 400: invalid_scope"),
        (403, b"<html>", "HTTP 403; is token_url the token endpoint?"),
        (404, b"", "HTTP 404; is token_url the token endpoint?"),
    ],
)
def test_a_refusal_is_told_from_a_failure(
    provider: Provider, status: int, body: bytes, says: str
) -> None:
    provider.answer = status, body
    with pytest.raises(TokenRefused, match=says.replace("?", r"\?")) as refused:
        ask(provider)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (503, b"away", "HTTP 503"),
        (429, b'{"error": "slow_down"}', "HTTP 429: slow_down"),
        (302, b"", "HTTP 302"),
        (200, b"<html>", "no JSON object"),
        (200, b"[1]", "no JSON object"),
        (200, b'{"token": "x"}', "no access_token"),
        (200, b'{"access_token": 5}', "no access_token"),
        (200, b'{"access_token": "opaque"}', "neither expires_in nor"),
        (200, b'{"access_token": "opaque", "expires_in": "soon"}', "neither expires_in nor"),
        (200, b'{"access_token": "opaque", "expires_in": "\xc2\xb2"}', "neither expires_in nor"),
        (200, b'{"access_token": "opaque", "expires_in": "%s"}' % (b"9" * 5_000), "neither"),
    ],
)
def test_any_other_answer_is_a_failure_that_may_pass(
    provider: Provider, status: int, body: bytes, says: str
) -> None:
    provider.answer = status, body
    provider.headers = {"Location": f"{provider.url}/elsewhere"}
    with pytest.raises(OSError, match=says):
        ask(provider)
    assert len(provider.asked) == 1, "no redirect is followed: the secret would go along"


@pytest.mark.parametrize("told", [60, "60", 60.0])
def test_an_opaque_token_belongs_to_the_client(provider: Provider, told: object) -> None:
    provider.answer = 200, json.dumps({"access_token": "opaque", "expires_in": told}).encode()
    token = ask(provider)
    assert (token.value, token.principal) == ("opaque", CLIENT)
    assert token.expires == pytest.approx(time.time() + 60, abs=30)


def test_a_token_that_says_when_it_expires_is_believed(provider: Provider) -> None:
    value = provider.token("somebody")
    provider.answer = 200, json.dumps({"access_token": value}).encode()
    token = ask(provider)
    assert (token.expires, token.principal) == (claims(value)["exp"], "somebody")


def test_a_provider_that_is_not_there_is_a_failure() -> None:
    with Provider(60) as gone:
        pass
    with pytest.raises(OSError, match=r"127\.0\.0\.1:\d+ does not answer: .*refused"):
        ask(gone)


def test_its_certificate_is_verified(tmp_path: Path) -> None:
    own, strange = tmp_path / "own", tmp_path / "strange"
    own.mkdir()
    strange.mkdir()
    trusted, stranger = certificates(own), certificates(strange)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted.certificate, trusted.key)
    with Provider(60, context) as provider:
        assert ask(provider, ca_file=str(trusted.authority)).principal == CLIENT
        for other in ({"ca_file": str(stranger.authority)}, {}):
            with pytest.raises(OSError, match="certificate verify failed"):
                ask(provider, **other)
    assert len(provider.asked) == 1
