"""The addresses that requests may go to: public ones, and those that the configuration allows."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Public by number, but answered by the machine's own cloud.
_METADATA = frozenset({ip_address("168.63.129.16")})

# Versions of Python differ in what `is_global` returns for some of these.
_SPECIAL = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.0.2.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("198.18.0.0/15"),
    IPv4Network("198.51.100.0/24"),
    IPv4Network("203.0.113.0/24"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("240.0.0.0/4"),
)
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """
    Return the networks in these texts: `10.1.0.0/16`, `::1`.

    Raises:
        ValueError: a text is not a network.
    """
    return tuple(ip_network(text.strip()) for text in texts)


def refusal(text: str, allowed: Iterable[Network] = ()) -> str | None:
    """Return why no request may go to an address; None: it may."""
    try:
        address = ip_address(text)
    except ValueError:
        return f"{text} is not an address"
    # An IPv4 address written as IPv6 means the same host.
    inner = embedded(address)
    candidates = [address] if inner is None else [address, inner]
    if any(each in network for network in allowed for each in candidates):
        return None
    why = _unfit(address if inner is None else inner)
    return None if why is None else f"{text} is {why}"


def embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address inside an IPv6 address; None: there is none."""
    if isinstance(address, IPv4Address):
        return None
    number = int(address)
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or (number >> 32 == 0 and number > 1):
        return IPv4Address(number & 0xFFFF_FFFF)
    if address in _6TO4:
        return IPv4Address(number >> 80 & 0xFFFF_FFFF)
    return None


def _unfit(address: Address) -> str | None:
    foreign = isinstance(address, IPv6Address) and (
        address not in _GLOBAL_V6 or address in _TEREDO or address.is_site_local
    )
    special = isinstance(address, IPv4Address) and any(address in each for each in _SPECIAL)
    faults = {
        "a metadata service": address in _METADATA,
        "no host's address": address.is_unspecified,
        "this machine's own (loopback)": address.is_loopback,
        "link-local, where metadata services are": address.is_link_local,
        "a multicast address": address.is_multicast,
        "private or reserved": address.is_reserved or not address.is_global or foreign or special,
    }
    return next((why for why, holds in faults.items() if holds), None)
