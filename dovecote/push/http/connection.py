"""One connection to an endpoint: HTTP/1.1, one request at a time, kept after error statuses."""

import asyncio
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, cast

import httptools

from outbox.errors import DovecoteError

KEPT_BYTES = 1024
_HEADER_BYTES = 64_000
# Overhead of a chunk that is accepted. A chunk of one byte needs six; more than this is made on
# purpose.
_WRAPPED = 8
_LENGTHS = frozenset({"content-length", "transfer-encoding"})
_EARLY = 200
_SWITCHING = 101


class SendFailed(DovecoteError):
    """There is no answer to the request; the message says why."""


class Forbidden(SendFailed):
    """Requests may not go to where the endpoint is."""


class Stale(SendFailed):
    """
    The other side closed a kept connection before it answered.

    It closes connections that are idle for too long, or behind an answer that promised to keep
    them, so this says nothing about the endpoint or the record.
    """


class Answer(NamedTuple):
    """An endpoint's answer."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    """By name in lower case; of a repeated name, the first."""
    excerpt: bytes = b""
    """The beginning of the body."""
    cut: bool = False
    """The answer was longer than the part that is read."""


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
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None
        self._used = self._began = self._headed = self._bodyless = False
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._size = self._came = 0
        self.made = time.monotonic()
        self.idle_since = self.made

    # The pool calls these.

    def ask(self, data: bytes, *, bodyless: bool) -> "asyncio.Future[Answer]":
        """Send a request, and return the future of its answer; `bodyless`: the method is HEAD."""
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._bodyless, self._began, self._headed, self._came = bodyless, False, False, 0
        if self._transport is None or self._transport.is_closing():
            self._fail("the kept connection was closed")
            return answer
        self._transport.write(data)
        return answer

    def expire(self, why: str) -> None:
        """Fail the current request, and close the connection with it."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            if not answer.done():
                answer.set_exception(SendFailed(why))
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # no request was sent
            return
        self._began = True
        self._came += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._answer is not None:
                self._fail(f"the answer is not HTTP/1.1: {error}")
            self.close()
        else:
            self._bound()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(self)
        if self._answer is None:
            return
        is_open = self._headed and not self._parser.should_keep_alive()
        if is_open and error is None and _LENGTHS.isdisjoint(self._headers):
            self._complete(keep=False)  # the end of the connection is the end of the body
        else:
            self._fail(f"the connection was closed before the answer ended ({error or 'EOF'})")

    # The parser calls these.

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.close()  # the next request must not get it as its answer

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:
            return  # a trailer, after the body
        self._size += len(name) + len(value)
        if self._size > _HEADER_BYTES:
            self._refuse_headers()
            return
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == _SWITCHING:
            self._fail("it answered 101, without a request to switch protocols")
            self.close()
        elif status >= _EARLY:
            self._headed, self._size = True, 0
            if self._bodyless:
                # Otherwise the parser would wait for a body of the announced length.
                keep, parser = self._parser.should_keep_alive(), self._parser
                self._parser = httptools.HttpResponseParser(self)
                self._complete(keep=keep, status=parser.get_status_code())

    def on_body(self, data: bytes) -> None:
        if self._answer is None:
            return
        self._size += len(data)
        if len(self._body) < KEPT_BYTES:
            self._body += data[: KEPT_BYTES - len(self._body)]
        if self._size > self._most:
            self._complete(keep=False, cut=True)
            self.close()

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < _EARLY:
            self._headers = {}  # 100 Continue or similar: the answer is still to come
        elif self._answer is not None:
            self._complete(keep=self._parser.should_keep_alive())

    def _complete(self, *, keep: bool, cut: bool = False, status: int | None = None) -> None:
        future, self._answer = self._answer, None
        code = self._parser.get_status_code() if status is None else status
        answer = Answer(code, self._headers, bytes(self._body), cut)
        self._headers, self._size, self._used = {}, 0, True
        self._body.clear()
        if future is not None and not future.done():
            future.set_result(answer)
        if keep:
            self._released(self)
        else:
            self.close()

    def _bound(self) -> None:
        """Stop reading an answer that never ends its lines: the parser would store them all."""
        if self._answer is None:
            return
        if not self._headed and self._came > _HEADER_BYTES:
            self._refuse_headers()
        elif self._came > _HEADER_BYTES + _WRAPPED * self._most:
            self._complete(keep=False, cut=True)

    def _refuse_headers(self) -> None:
        self._fail(f"the headers of its answer are longer than {_HEADER_BYTES} bytes")
        self.close()

    def _fail(self, why: str) -> None:
        future, self._answer = self._answer, None
        if future is not None and not future.done():
            stale = self._used and not self._began
            future.set_exception(Stale(why) if stale else SendFailed(why))
