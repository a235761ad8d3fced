"""From a host's name to the addresses a connection may be made to, each of them checked."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from dovecote.push.rules.sending.addresses import Network, refusal
from outbox.errors import DovecoteError

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]


class Refused(DovecoteError):
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
    Looks at every address before anybody connects to it.

    What it returns is what is connected to: the name is not asked for again, so that who owns
    it cannot answer otherwise the second time.
    """

    allowed: tuple[Network, ...] = ()
    """Addresses that are refused by default, and may be connected to all the same."""
    resolve: Resolve = resolve

    async def addresses(self, host: str, port: int) -> list[str]:
        """
        Return the addresses of a host that may all be connected to.

        Raises:
            Refused: one of them may not.
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
            # One bad address among good ones is how a name is aimed at both.
            if (why := refusal(address, self.allowed)) is not None:
                msg = (
                    f"{host} is refused: {why}; if requests should go there, say so in "
                    "`allow_addresses`"
                )
                raise Refused(msg)
        return found
