"""Look at relays and topics."""

from collections.abc import Callable

from dovecote.devstack.server import Server
from tests.support.relaying import RelayProcess


def ends(server: Server, how: str) -> Callable[[], None]:
    """Take a server away, and return a function that brings it back."""
    if how == "kill":
        server.kill()
        return server.start
    server.pause()
    return server.resume


def active(crew: list[RelayProcess]) -> list[RelayProcess]:
    return [relay for relay in crew if "active: this relay alone may publish" in relay.log]
