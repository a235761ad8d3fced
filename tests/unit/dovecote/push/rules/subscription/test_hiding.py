"""An endpoint's answer is shown, but not what it was sent."""

import asyncio
import json
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from typing import cast

import pytest

from dedup.rules.record import Record
from dovecote.push.delivery.delivery import DeliveryHandler
from dovecote.push.delivery.shape import secrets
from dovecote.push.http.client import Client
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.rules.subscription.hiding import hiding
from dovecote.push.rules.subscription.subscription import Subscription, subscription
from tests.support.waiting import patient

TOKEN = "Bearer s3cr3t/t0ken&<x>+=="  # noqa: S105  # nobody's
KEY = "whsec_" + "b2xk" * 8


def subscribed() -> Subscription:
    return subscription(
        {
            "id": "s",
            "topics": ["orders"],
            "endpoint": {
                "url": "https://example.com/",
                "headers": {"Authorization": TOKEN, "Content-Type": "text/plain"},
            },
            "signing": {"secrets": [KEY]},
        }
    )


def test_what_is_hidden_are_headers_that_may_hold_tokens_and_what_signs() -> None:
    assert secrets(subscribed()) == [TOKEN, KEY]


class Echo:
    """An endpoint that answers with what it was sent."""

    async def send(self, *_: object) -> Answer:
        return Answer(500, {}, f"{{'Authorization': '{TOKEN}', 'secret': '{KEY}'}}".encode())


class Noted(list[AttemptReport]):
    """A journal."""

    def attempted(self, attempt: AttemptReport) -> None:
        self.append(attempt)

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Do nothing: no subscription is ever disabled here."""


def test_what_is_written_down_of_an_echo_shows_no_secret() -> None:
    book, numbers = Noted(), Metrics().of("s")
    record = Record("orders", 0, 7, 0, b"k", b"{}", ())

    asyncio.run(
        DeliveryHandler(subscribed(), cast("Client", Echo()), numbers, book).deliver(record)
    )

    assert [each.detail for each in book] == [
        "{'Authorization': '********', 'secret': '********'}"
    ]


def test_of_a_long_key_the_beginning_is_written_down() -> None:
    book, numbers = Noted(), Metrics().of("s")
    record = Record("orders", 0, 7, 0, b"\xff" + b"k" * 900_000, b"{}", ())

    asyncio.run(
        DeliveryHandler(subscribed(), cast("Client", Echo()), numbers, book).deliver(record)
    )

    assert [(each.key or "")[:6] for each in book] == ["\\xffkk"]
    assert len(book[0].key or "") < 1_000


@pytest.mark.parametrize(
    "said",
    [
        f"you sent Authorization: {TOKEN}!",
        f"no such token: {TOKEN.split()[1]}",
        json.dumps({"authorization": TOKEN}),
        "<td>Bearer s3cr3t/t0ken&amp;&lt;x&gt;+==</td>",
        "?token=s3cr3t%2Ft0ken%26%3Cx%3E%2B%3D%3D",
        r'{"authorization": "Bearer s3cr3t\/t0ken\u0026<x>+=="}',
        r'{"authorization": "Bearer s3cr3t\u002Ft0ken\u0026\u003cx\u003E+=="}',
        json.dumps(json.dumps({"a": TOKEN})).replace("/", r"\/"),
        "Bearer+s3cr3t%2ft0ken%26%3cx%3e%2b%3d%3d",
        "Bearer%20s3cr3t%252Ft0ken%2526%253Cx%253E%252B%253D%253D",
        "".join(f"%{ord(each):02X}" for each in TOKEN),
        "".join(f"\\u{ord(each):04x}" for each in TOKEN),
        "".join(f"&#x{ord(each):X};" for each in TOKEN),
        "s3cr3t&#47;t0ken&amp;amp;&lt;x&#062;+==",
        r"cut in the middle of s3cr3t\/t0k",
        "cut in the middle of Bearer%20s3cr3t%2",
        "cut in the middle of Bearer s3cr3t/t0k",
        "cut in the middle of s3cr3t/t0k",
    ],
)
def test_an_echo_shows_no_secret(said: str) -> None:
    shown = hiding([TOKEN])(said, cut=said.startswith("cut"))
    assert "s3cr3t" not in shown
    assert "********" in shown


@pytest.mark.parametrize("before", ["", "a", "ab", "abc:"])
def test_an_echo_in_base64_or_hex_shows_no_secret(before: str) -> None:
    data = f"{before}{TOKEN}, and more".encode()
    for said in (b64encode(data), urlsafe_b64encode(data), data.hex().encode()):
        shown = hiding([TOKEN])(said.decode())
        assert "********" in shown
        # No eight characters in a row are left of what the token alone makes.
        for left in shown.split("********"):
            assert TOKEN.encode()[3:12] not in _meant(left)


def _meant(text: str) -> bytes:
    found = b""
    for start in range(4):
        with suppress(ValueError):
            found += urlsafe_b64decode(text[start : start + (len(text) - start) // 4 * 4])
    with suppress(ValueError):
        found += bytes.fromhex(text)
    return found


def test_what_a_secret_in_base64_stands_for_is_hidden_too() -> None:
    basic = b64encode(b"shop:pass-w0rd").decode()
    hide = hiding([f"Basic {basic}", KEY])
    assert hide("user shop:pass-w0rd is unknown") == "user ******** is unknown"
    assert hide("wrong password pass-w0rd") == "wrong password ********"
    assert hide(f"key {KEY.removeprefix('whsec_')}") == "key ********"


def test_a_secret_that_is_made_to_cost_much_costs_little() -> None:
    hide = hiding(["Bearer " + "\\" * 60 + "x", "%25" * 60, "&amp;" * 60 + "x"])
    began = time.thread_time()
    for said in ("\\" * 1_000, "%25" * 340, "&amp;" * 200, "%2525" * 200):
        hide(said + "y", cut=True)
    assert time.thread_time() - began < patient(0.5)


@pytest.mark.parametrize("said", ["", "thanks", "Bearer token expected", "s3c"])
def test_what_holds_no_secret_is_shown_as_it_is(said: str) -> None:
    assert hiding([TOKEN, "x", ""])(said, cut=True) == said
    assert hiding([])(said, cut=True) == said
