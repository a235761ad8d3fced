"""Signatures are those of Standard Webhooks: its own library verifies them."""

import base64
import hmac
import json
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from dovecote.push.rules.sending.headers import lines
from dovecote.push.rules.sending.signing import Signer, public_key
from dovecote.push.rules.subscription.sections import signing_key

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  # of the public test vectors
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
SEED = bytes(range(32))


def test_it_is_the_signature_of_the_vector_that_the_libraries_test_with() -> None:
    signed = Signer([signing_key(SECRET)]).signature(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_public_library_verifies_what_is_signed() -> None:
    body = json.dumps({"type": "shop.Placed", "data": {"ä": 1}}, ensure_ascii=False).encode()
    headers = dict(Signer([signing_key(SECRET)]).headers("e1", int(time.time()), body))
    assert Webhook(SECRET).verify(body, headers) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body + b" ", headers)


@pytest.mark.parametrize("length", [1, 24, 63, 64, 65, 200])
def test_a_secret_of_any_length_signs_as_python_does(length: int) -> None:
    secret = bytes(range(length))
    for number in range(3):
        signed = Signer([("v1", secret)]).signature("e1", number, b"{}")
        expected = hmac.digest(secret, b"e1.%d.{}" % number, "sha256")
        assert base64.b64decode(signed.removeprefix("v1,")) == expected


@pytest.mark.parametrize("secret", [SECRET, OTHER])
def test_while_a_secret_is_replaced_the_old_one_and_the_new_both_verify(secret: str) -> None:
    signer = Signer([signing_key(SECRET), signing_key(OTHER)])
    headers = dict(signer.headers("e1", int(time.time()), b"{}"))
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert Webhook(secret).verify(b"{}", headers) == {}


def test_an_old_timestamp_is_refused_so_each_attempt_has_its_own() -> None:
    headers = dict(Signer([signing_key(SECRET)]).headers("e1", int(time.time()) - 600, b"{}"))
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"{}", headers)


def test_an_ed25519_key_signs_what_its_public_key_verifies() -> None:
    secret = "whsk_" + base64.b64encode(SEED).decode()
    told = Signer([signing_key(secret)]).signature("e1", 1_700_000_000, b"{}")
    version, _, signature = told.partition(",")
    assert version == "v1a"
    public = public_key(SEED)
    assert public.startswith("whpk_")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix("whpk_")))
    key.verify(base64.b64decode(signature), b"e1.1700000000.{}")


def test_without_a_secret_there_is_an_id_and_a_time_and_no_signature() -> None:
    assert Signer([]).headers("e1", 5, b"") == [("webhook-id", "e1"), ("webhook-timestamp", "5")]


@pytest.mark.parametrize("secrets", [[], [SECRET], [SECRET, OTHER]])
def test_the_lines_of_an_attempt_are_its_headers(secrets: list[str]) -> None:
    signer = Signer([signing_key(each) for each in secrets])
    given = "e1@%2Fshop", 1_700_000_000, b"{}"
    assert signer.lines(*given) == lines(signer.headers(*given))
