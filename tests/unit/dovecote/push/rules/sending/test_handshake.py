"""The handshake of CloudEvents webhooks."""

import pytest

from dovecote.push.rules.sending.handshake import Agreed, NotAgreed, agreement, asking


def test_it_asks_who_we_are_and_how_many_a_minute() -> None:
    assert asking("shop.example", None) == (("WebHook-Request-Origin", "shop.example"),)
    assert asking("shop.example", 2.0)[1] == ("WebHook-Request-Rate", "120")


@pytest.mark.parametrize("allowed", ["*", "shop.example"])
def test_who_is_allowed_may_send(allowed: str) -> None:
    assert agreement(200, {"webhook-allowed-origin": allowed}, "shop.example") == Agreed(None)


def test_the_rate_that_is_granted_holds() -> None:
    headers = {"webhook-allowed-origin": "*", "webhook-allowed-rate": "120"}
    assert agreement(204, headers, "us") == Agreed(2.0)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {}),
        (200, {"webhook-allowed-origin": "others.example"}),
        (405, {"webhook-allowed-origin": "*"}),
        (302, {"webhook-allowed-origin": "*"}),
        (200, {"webhook-allowed-origin": "*", "webhook-allowed-rate": "0"}),
        (200, {"webhook-allowed-origin": "*", "webhook-allowed-rate": "many"}),
    ],
)
def test_everything_else_is_a_no(status: int, headers: dict[str, str]) -> None:
    assert isinstance(agreement(status, headers, "us"), NotAgreed)
