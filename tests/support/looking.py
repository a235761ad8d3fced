"""Look at relays and topics."""

from collections.abc import Callable

from dovecote.devstack.server import Server
from tests.support.relaying import RelayProcess, Watch
from tests.support.waiting import until


def ends(server: Server, how: str) -> Callable[[], None]:
    """Take a server away, and return a function that brings it back."""
    if how == "kill":
        server.kill()
        return server.start
    server.pause()
    return server.resume


def active(crew: list[RelayProcess]) -> list[RelayProcess]:
    return [relay for relay in crew if "active: this relay alone may publish" in relay.log]


def pause_in_flight(relay: RelayProcess, watch: Watch) -> None:
    """Stop a busy relay at a moment when one of its transactions is open."""

    def stopped_in_flight() -> bool:
        before = watch.records()
        until(lambda: watch.records() > before, within=20, what="more records")
        relay.pause()
        if watch.in_flight():
            return True
        relay.resume()
        return False

    until(stopped_in_flight, within=30, what="a transaction in flight")
