"""Resolve a host's name, and check every address before a connection is made to it."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from dovecote.push.rules.sending.addresses import Network, refusal
from outbox.errors import DovecoteError

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]


class AddressRefused(DovecoteError):
    """Requests may not go to the address that a name stands for."""


class Unresolved(DovecoteError):
    """No address could be found for a name."""


async def resolve(host: str, port: int) -> list[str]:
    """
    Return the addresses of a host, in the system's order.

    Raises:
        Unresolved: there are none.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        msg = f"no address for {host}: {error}"
        raise Unresolved(msg) from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


@dataclass(frozen=True, slots=True)
class Guard:
    """
    Checks every address before anybody connects to it.

    Connections go to exactly the addresses that it returns. The name is not resolved a second
    time, so its owner cannot give another answer then.
    """

    allowed: tuple[Network, ...] = ()
    """Networks that may be connected to although they are refused by default."""
    resolve: Resolve = resolve

    async def addresses(self, host: str, port: int) -> list[str]:
        """
        Return the addresses of a host, all of which may be connected to.

        Raises:
            AddressRefused: one of them may not.
            Unresolved: there are none.
        """
        try:
            found = [str(ipaddress.ip_address(host))]
        except ValueError:
            found = await self.resolve(host, port)
        if not found:
            msg = f"no address for {host}"
            raise Unresolved(msg)
        for address in found:
            # A name with one bad address among good ones is aimed at both.
            if (why := refusal(address, self.allowed)) is not None:
                msg = (
                    f"{host} is refused: {why}; if requests should go there, say so in "
                    "`allow_addresses`"
                )
                raise AddressRefused(msg)
        return found
