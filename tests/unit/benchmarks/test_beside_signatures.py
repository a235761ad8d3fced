"""The endpoint that verifies what pushers sign."""

import urllib.request
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from benchmarks.beside.signatures import receiver
from benchmarks.pushed import KEY, SECRET

BODY = b"0000000001xxxxx"


def send(url: str, signature: str, at: datetime) -> int:
    request = urllib.request.Request(  # noqa: S310  # the receiver's own address
        url,
        data=BODY,
        headers={
            "Webhook-Id": "1",
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": signature,
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  # as above
        return int(answer.status)


def test_a_request_that_is_signed_is_taken() -> None:
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign("1", now, BODY.decode())
    with receiver(SECRET) as found:
        assert send(found.url, signature, now) == 204
        assert (found.taken, found.refused) == (1, None)


@pytest.mark.parametrize("signature", ["", "v1,AAAA"])
def test_a_request_with_another_signature_is_refused(signature: str) -> None:
    with receiver(SECRET) as found:
        assert send(found.url, signature, datetime.now(UTC)) == 204
        assert found.taken == 1
        assert found.refused is not None


def test_the_secret_is_the_key_that_peers_get_as_it_is() -> None:
    at = datetime.now(UTC)
    assert Webhook(KEY.encode()).sign("1", at, "x") == Webhook(SECRET).sign("1", at, "x")
