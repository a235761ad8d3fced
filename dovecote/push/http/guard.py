"""Resolve a host's name, and check every address before a connection is made to it."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
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

    Requests that want the same host at a time share one lookup. It has a thread of its own,
    because a name server that is silent holds it for long: uvloop has four threads for all
    endpoints of a process.

    Raises:
        Unresolved: there are none.
    """
    try:
        return await asyncio.wrap_future(_lookup(host, port))
    except (OSError, UnicodeError, RuntimeError) as error:  # the last one: no thread can begin
        msg = f"no address for {host}: {error}"
        raise Unresolved(msg) from error


_begins = threading.Lock()
_under_way: dict[tuple[str, int], Future[list[str]]] = {}


def _lookup(host: str, port: int) -> Future[list[str]]:
    """Return the lookup that is under way, or begin one."""
    with _begins:
        found = _under_way.get((host, port))
        if found is None:
            found = Future()
            # A request that waits no longer does not end it for the others.
            found.set_running_or_notify_cancel()
            threading.Thread(
                target=_look_up, args=(host, port, found), name="lookup", daemon=True
            ).start()
            _under_way[host, port] = found
    return found


def _look_up(host: str, port: int, found: Future[list[str]]) -> None:
    told: list[str] | Exception
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        told = list(dict.fromkeys(str(each[4][0]) for each in answers))
    except Exception as error:  # noqa: BLE001  # each request that waits for it raises it
        told = error
    with _begins:
        _under_way.pop((host, port), None)
    if isinstance(told, Exception):
        found.set_exception(told)
    else:
        found.set_result(told)


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
