"""
Give a service's tests real servers, databases and topics, as fixtures of pytest.

Their types are loaded when they are asked for, because pytest imports this package anyhow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovecote.testing.databases import OutboxDatabase
    from dovecote.testing.events import OutboxEvents
    from dovecote.testing.servers import TestedServers

__all__ = ["OutboxDatabase", "OutboxEvents", "TestedServers"]

_MODULES = {
    "OutboxDatabase": "dovecote.testing.databases",
    "OutboxEvents": "dovecote.testing.events",
    "TestedServers": "dovecote.testing.servers",
}


def __getattr__(name: str) -> object:
    if (module := _MODULES.get(name)) is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(module), name)
