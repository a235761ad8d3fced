"""The right that each route of the API needs."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from dovecote.push.rules.access.scope import Right, Scope

Need: TypeAlias = Right | Literal["nothing", "sight"]
"""
A right, or `nothing`: the route is open to everybody who can connect, and shows no contents.

`sight`: as `nothing` while every token sees all subscriptions. Otherwise the route needs a token
that may read all of them, for it shows their names.
"""

NEEDS: Mapping[tuple[str, str], Need] = {
    ("GET", "/"): "nothing",
    ("GET", "/page.css"): "nothing",
    ("GET", "/page.js"): "nothing",
    ("GET", "/loading.js"): "nothing",
    ("GET", "/openapi.json"): "nothing",
    ("GET", "/metrics"): "sight",
    ("GET", "/subscriptions"): "read",
    ("GET", "/subscriptions/{id}"): "read",
    ("GET", "/subscriptions/{id}/attempts"): "read",
    ("GET", "/subscriptions/{id}/dead"): "read",
    ("GET", "/subscriptions/{id}/dead-newest"): "read",
    ("GET", "/subscriptions/{id}/dead-search"): "read",
    ("GET", "/subscriptions/{id}/dead/{event:path}"): "read",
    ("GET", "/broker/subscription"): "read",
    ("POST", "/subscriptions"): "write",
    ("PUT", "/subscriptions/{id}"): "write",
    ("PATCH", "/subscriptions/{id}"): "write",
    ("DELETE", "/subscriptions/{id}"): "write",
    ("POST", "/broker/subscription"): "write",
    ("POST", "/broker/unsubscribe"): "write",
    ("POST", "/subscriptions/{id}/pause"): "operate",
    ("POST", "/subscriptions/{id}/resume"): "operate",
    ("POST", "/subscriptions/{id}/replay"): "operate",
    ("POST", "/subscriptions/{id}/skip"): "operate",
    ("POST", "/subscriptions/{id}/dead/requeue"): "operate",
    ("POST", "/subscriptions/{id}/dead/drop"): "operate",
    ("GET", "/audit"): "operate",
}
"""Every route by its method and path; the application does not start with any other."""


def lacking(scope: Scope, need: Need) -> str:
    """Return why a caller may not use a route that needs `need`; empty: it may."""
    match need:
        case "nothing":
            return ""
        case "sight" if not scope.sees_all:
            return f"token {scope.name!r} may see its own subscriptions only"
        case "sight":
            return scope.lacks("read")
        case _:
            return scope.lacks(need)


_OF_CONTENTS = frozenset(
    {
        ("GET", "/subscriptions/{id}/dead/{event:path}"),
        # Its filter decides by what a record contains, and so tells of it.
        ("GET", "/subscriptions/{id}/dead-search"),
    }
)
_REFUSED = frozenset({401, 403, 404})


def is_audited(method: str, path: str, status: int) -> bool:
    """
    Return whether the audit log has a request, by the route's path and the answer's status.

    It has all that change something, all that were refused, and reads of a record's contents.
    """
    return method != "GET" or status in _REFUSED or (method, path) in _OF_CONTENTS
