"""The caller of a request: what its token may do, and what the audit log has of the request."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from dovecote.push.errors import Busy
from dovecote.push.rules.access.scope import Scope, covers
from dovecote.push.rules.access.shares import Share, share_of
from dovecote.push.store.store import Stored


class Turns:
    """
    Lets few requests of one token be worked on at a time.

    All tokens share the server's threads, so some of them could take them all.
    """

    def __init__(self, share: Share) -> None:
        self._free, self._there = asyncio.Semaphore(share.at_once), 0
        self._most = share.at_once + share.waiting

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """
        Wait for a turn, and have it for the block.

        Raises:
            Busy: too many wait already.
        """
        if self._there >= self._most:
            msg = f"this token has {self._there} requests under way: ask again later"
            raise Busy(msg)
        self._there += 1
        try:
            async with self._free:
                yield
        finally:
            self._there -= 1


@dataclass(slots=True)
class Caller:
    """One request's caller; operations note here what the audit log is to have."""

    scope: Scope
    turns: Turns = field(default_factory=lambda: Turns(share_of(1)))
    """Its token has them."""
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
