"""One connection to an endpoint: HTTP/1.1, one request at a time, kept after error statuses."""

import asyncio
import re
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, cast

from dovecote.push.rules.sending.answer import Answer, AnswerReader, whole
from outbox.errors import DovecoteError

_LINE_ENDS = b"\r\n"
_FAREWELL = re.compile(rb"HTTP/\d\.\d[ \t]+408", re.IGNORECASE)


class SendFailed(DovecoteError):
    """There is no answer to the request; the message says why."""


class Forbidden(SendFailed):
    """Requests may not go to where the endpoint is."""


class Stale(SendFailed):
    """
    The other side closed a kept connection before it answered, or sent what is no answer.

    It closes connections that are idle for too long, or behind an answer that promised to keep
    them. Bytes before an answer are left over from the one before. So this says nothing about the
    endpoint or the record.
    """


Took: TypeAlias = Callable[[Answer | SendFailed], None]
"""Takes the answer to a request, or why there is none; called on the loop."""


class Connection(asyncio.Protocol):
    """Calls `released` when it can take another request, and `lost` when it is gone."""

    def __init__(
        self,
        *,
        most: int,
        released: Callable[["Connection"], None],
        lost: Callable[["Connection"], None],
    ) -> None:
        self._most, self._released, self._lost = most, released, lost
        self._loop = asyncio.get_running_loop()
        self._bodyless = False
        self._reader: AnswerReader | None = None
        """Reads the answer, once a part of it came."""
        self._took: Took | None = None
        """Takes the answer; None: no request is under way."""
        self._transport: asyncio.Transport | None = None
        self._used = False
        self.strayed = False
        """Whether bytes came that belong to no answer."""
        self.made = time.monotonic()
        self.idle_since = self.made

    # The pool calls these.

    def ask(self, data: bytes, *, bodyless: bool) -> "asyncio.Future[Answer]":
        """Send a request, and return the future of its answer; `bodyless`: the method is HEAD."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self.begin(data, partial(_settle, answer), bodyless=bodyless)
        return answer

    def begin(self, data: bytes, took: Took, *, bodyless: bool) -> None:
        """
        Send a request; `took` is called with its answer, once the connection is free again.

        It is called before this returns only if the connection `is_closing`.
        """
        self._took, self._bodyless, self._reader = took, bodyless, None
        transport = self._transport
        if transport is None or transport.is_closing():
            self._end("the kept connection was closed")
        else:
            transport.write(data)

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def expire(self, why: str) -> None:
        """
        End the current request, and close the connection with it.

        It fails unless the answer has begun.
        """
        self._used = False  # whatever it is, it is no matter of an earlier answer
        self._end(why)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._took is None:  # no request was sent
            if data.strip(_LINE_ENDS):
                self.strayed = self.strayed or not _FAREWELL.match(data)
                self.close()
            return
        if self._reader is None:
            found = whole(data, most=self._most, bodyless=self._bodyless)
            if found is not None:
                self._answered(found)
                return
        if self._reading().feed(data):
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(
            f"the connection was closed before the answer ended ({error or 'EOF'})",
            cleanly=error is None,
        )
        self._lost(self)

    def _reading(self) -> AnswerReader:
        if self._reader is None:
            self._reader = AnswerReader(most=self._most, bodyless=self._bodyless)
        return self._reader

    def _end(self, why: str, *, cleanly: bool = False) -> None:
        if self._took is not None:
            self._reading().end(why, cleanly=cleanly)
            self._finish()

    def _finish(self) -> None:
        reader = self._reading()
        self.strayed = self.strayed or reader.strayed
        found: Answer | SendFailed
        if not reader.failure:
            found = reader.answer
        elif self._used and not reader.began:
            found = Stale(reader.failure)
        else:
            found = SendFailed(reader.failure)
        self._answered(found, reusable=reader.reusable)

    def _answered(self, found: Answer | SendFailed, *, reusable: bool = True) -> None:
        """Become free or close, and say what came: then the next request may use it at once."""
        took, self._took, self._used = self._took, None, True
        if reusable:
            self._released(self)
        else:
            self.close()
        if took is not None:
            took(found)


def _settle(future: "asyncio.Future[Answer]", found: Answer | SendFailed) -> None:
    if future.done():
        return
    if isinstance(found, Answer):
        future.set_result(found)
    else:
        future.set_exception(found)
