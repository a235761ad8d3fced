"""Ask an endpoint once whether requests may be sent, and let requests wait for the answer."""

import asyncio
import logging
from collections.abc import Callable

from dedup.rules.policies.wording import plain
from dovecote.push.http.client import Client
from dovecote.push.http.connection import SendFailed
from dovecote.push.rules.pacing.pace import Pace
from dovecote.push.rules.sending import handshake

_log = logging.getLogger("dovecote.push")

REST_SECONDS = 2.0
"""Seconds after which an endpoint that did not agree is asked again."""


class Shaking:
    """The handshake of CloudEvents webhooks; used on one loop."""

    def __init__(
        self,
        subscription: str,
        client: Client,
        pace: Pace,
        hide: Callable[[str], str],
        *,
        target: str,
        origin: str,
        needed: bool,
    ) -> None:
        self._subscription, self._client, self._pace = subscription, client, pace
        self._hide, self._target, self._origin = hide, target, origin
        self.done = not needed
        """Whether requests may be sent."""
        self.trouble = ""
        """Why the endpoint has not agreed."""
        self._asking: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        """Ask whether requests may be sent; others who ask meanwhile wait for the same answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._asked())
        await asyncio.shield(self._asking)

    async def _asked(self) -> None:
        headers = handshake.asking(self._origin, self._pace.most)
        try:
            answer = await self._client.options(self._target, headers)
        except SendFailed as error:
            told: handshake.Agreed | handshake.NotAgreed = handshake.NotAgreed(str(error))
        else:
            told = handshake.agreement(answer.status, answer.headers, self._origin)
        if isinstance(told, handshake.NotAgreed):
            reason = plain(self._hide(told.reason))
            if reason != self.trouble:
                _log.warning("%s: no handshake: %s", self._subscription, reason)
            self.trouble = reason
            await asyncio.sleep(REST_SECONDS)
            return
        self.trouble, self.done = "", True
        rates = [each for each in (self._pace.most, told.per_second) if each is not None]
        self._pace.most = min(rates, default=None)
