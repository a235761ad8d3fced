"""Decide under which hosts a server may be asked."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]\\]+))(?::[0-9]{1,5})?")
_MOST_SHOWN = 100


def is_loopback(host: str) -> bool:
    """Return whether nobody but this machine reaches a server that listens on `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Hosts:
    """
    The hosts under which requests may ask a server.

    A web page can reach a server through a name of its own that resolves to the server's address.
    The browser then takes the answers for the page's own. An address cannot be used in this way,
    so a server that is open to other machines takes every address.
    """

    names: frozenset[str]
    every_address: bool

    @classmethod
    def of(cls, host: str, others: Iterable[str], machine: str) -> Self:
        """
        Return the hosts of a server that listens on `host`.

        `others` are names from the settings, and `machine` is the name of this machine.
        """
        local = is_loopback(host)
        own = () if local else (machine,)
        names = (each.rstrip(".").lower() for each in ("localhost", host, *others, *own) if each)
        return cls(frozenset(names), every_address=not local)

    def refusal(self, host: str | None, origin: str | None = None) -> str:
        """
        Return why a request is refused; empty: it is not.

        `host` and `origin` are its headers. A page of the same host may ask, and a page of one of
        our names. A request without a host is no page's: probes of HTTP/1.0 have none, and a
        browser always has one.
        """
        if host is None and origin is None:
            return ""
        named = _name(host or "")
        if not self._ours(named):
            return (
                f"the request names the host {(host or '')[:_MOST_SHOWN]!r}, which is none of "
                "this server's: ask for its address, or list the name in http.hosts"
            )
        if origin is not None:
            page = _origin(origin)
            if page != named and page not in self.names and not _is_loopback_address(page):
                return f"the request comes from a page of {origin[:_MOST_SHOWN]!r}, another site"
        return ""

    def _ours(self, name: str) -> bool:
        if name in self.names or _is_loopback_address(name):
            return True
        return self.every_address and _is_address(name)


def _name(host: str) -> str:
    """Return the host of a header without its port, empty if it is none."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).rstrip(".").lower() if found else ""


def _origin(origin: str) -> str:
    try:
        return _name(urlsplit(origin).netloc)
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback_address(name: str) -> bool:
    return _is_address(name) and ip_address(name).is_loopback
