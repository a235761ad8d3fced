"""Requests must not go to certain addresses, however these are written."""

import asyncio
import ipaddress
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovecote.push.http.guard import AddressRefused, Guard, Unresolved
from dovecote.push.rules.sending.addresses import networks, refusal

FORBIDDEN = [
    "0.0.0.0",  # noqa: S104  # refused, and not listened on
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%lo",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "2001::1",
    "100::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "no address",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_no_request_goes_to(address: str) -> None:
    assert refusal(address) is not None


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"],
)
def test_public_addresses_are_fine(address: str) -> None:
    assert refusal(address) is None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_in_each_of_its_forms(address: object) -> None:
    number = int(ipaddress.IPv4Address(str(address)))
    mapped = str(ipaddress.IPv6Address((0xFFFF << 32) | number))
    nat64 = str(ipaddress.IPv6Address((0x64FF9B << 96) | number))
    judged = refusal(str(address)) is None
    assert (refusal(mapped) is None) == judged
    assert (refusal(nat64) is None) == judged


def test_what_is_allowed_is_allowed_in_each_of_its_forms_and_nothing_else() -> None:
    allowed = networks(["10.1.0.0/16", "::1"])
    assert refusal("10.1.2.3", allowed) is None
    assert refusal("::ffff:10.1.2.3", allowed) is None
    assert refusal("::1", allowed) is None
    assert refusal("10.2.0.1", allowed) is not None
    assert refusal("127.0.0.1", allowed) is not None


def answering(*addresses: str) -> Guard:
    async def resolve(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return Guard(resolve=resolve)


def test_a_name_is_refused_if_one_of_its_addresses_is() -> None:
    with pytest.raises(AddressRefused, match=r"169\.254\.169\.254 is link-local"):
        asyncio.run(answering("1.1.1.1", "169.254.169.254").addresses("a.example", 443))
    assert asyncio.run(answering("1.1.1.1").addresses("a.example", 443)) == ["1.1.1.1"]
    with pytest.raises(Unresolved):
        asyncio.run(answering().addresses("a.example", 443))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:10.0.0.1"])
def test_an_address_in_the_url_is_checked_without_being_resolved(host: str) -> None:
    with pytest.raises(AddressRefused):
        asyncio.run(answering("1.1.1.1").addresses(host, 80))


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1", "127.1", "017700000001"])
def test_other_ways_to_write_loopback_are_resolved_and_refused(host: str) -> None:
    with pytest.raises((AddressRefused, Unresolved)):
        asyncio.run(Guard().addresses(host, 80))


def test_a_name_that_changes_its_mind_is_asked_once_and_what_was_checked_is_used() -> None:
    answers: Iterator[list[str]] = iter([["1.1.1.1"], ["127.0.0.1"]])

    async def resolve(_host: str, _port: int) -> list[str]:
        return next(answers)

    guard = Guard(resolve=resolve)
    assert asyncio.run(guard.addresses("rebinds.example", 80)) == ["1.1.1.1"]
    with pytest.raises(AddressRefused):
        asyncio.run(guard.addresses("rebinds.example", 80))
