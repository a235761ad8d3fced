"""The caller of a request: what its token may do, and what the audit log has of the request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from dovecote.push.rules.access.scope import Scope, covers
from dovecote.push.store.store import Stored


@dataclass(slots=True)
class Caller:
    """One request's caller; operations note here what the audit log is to have."""

    scope: Scope
    is_open: bool = False
    """Whether the route is open to everybody, whoever calls."""
    subscription: str = ""
    owner: str = ""
    """The owner of the subscription, once the caller may see it."""
    detail: str = ""
    error: str = ""
    route: str = ""


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners that the settings know, and the ids that belong to each."""

    ids: Sequence[tuple[str, Sequence[str]]] = field(default=())

    def of(self, found: Stored) -> str:
        """Return the owner of a subscription; one that has none belongs to its id's owner."""
        return found.owner or self.at(found.id)

    def at(self, id_: str) -> str:
        """Return the owner that an id belongs to; empty: no one."""
        return next((owner for owner, ids in self.ids if covers(ids, id_)), "")


def _caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


Called: TypeAlias = Annotated[Caller, Depends(_caller)]
