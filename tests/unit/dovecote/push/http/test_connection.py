"""Malicious answers of endpoints, byte by byte."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, cast

import pytest

from dovecote.push.http.connection import Connection, SendFailed
from dovecote.push.rules.sending.answer import Answer

MOST = 1_000
MEBIBYTE = b"a" * 2**20
OK = b"HTTP/1.1 200 OK\r\n"


class Transport:
    """Takes what is written, and is closed."""

    closed = False

    def write(self, data: bytes) -> None:
        """Do nothing: nobody reads it."""

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


class Asked:
    """A connection that has sent a request."""

    def __init__(self) -> None:
        self.released: list[Connection] = []
        self.transport = Transport()
        self.connection = Connection(most=MOST, released=self.released.append, lost=lambda _: None)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))
        self.answer = self.connection.ask(b"", bodyless=False)

    def takes(self, data: bytes, *, times: int) -> int:
        """Receive `data` up to `times` times, until the connection is closed; return how often."""
        for number in range(times):
            if self.transport.closed:
                return number
            self.connection.data_received(data)
        return times

    def failure(self) -> str:
        error = self.answer.exception()
        assert isinstance(error, SendFailed)
        return str(error)


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: object, **named: object) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@looped
async def test_a_header_without_an_end_is_not_kept() -> None:
    asked = Asked()
    asked.takes(OK + b"X: ", times=1)
    assert asked.takes(MEBIBYTE, times=100) == 1
    assert asked.answer.result() == Answer(200, {}, cut=True)


@looped
async def test_headers_before_the_answer_have_an_end() -> None:
    asked = Asked()
    assert asked.takes(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, times=1000) < 100
    assert "headers" in asked.failure()


@pytest.mark.parametrize(
    "endless", [b"X: 1\r\n", b"X: " + b"a" * 10_000], ids=["trailers", "a trailer"]
)
@looped
async def test_what_follows_a_body_has_an_end(endless: bytes) -> None:
    asked = Asked()
    asked.takes(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", times=1)
    assert asked.takes(endless, times=100_000) < 100_000
    found = asked.answer.result()
    assert (found.status, found.cut) == (200, True)


@looped
async def test_chunks_of_nothing_but_their_sizes_have_an_end() -> None:
    asked = Asked()
    asked.takes(OK + b"Transfer-Encoding: chunked\r\n\r\n1;", times=1)
    assert asked.takes(MEBIBYTE, times=100) < 100
    assert asked.answer.result().cut


@looped
async def test_a_body_of_single_bytes_is_read_to_its_end() -> None:
    asked = Asked()
    asked.takes(OK + b"Transfer-Encoding: chunked\r\n\r\n", times=1)
    assert asked.takes(b"1\r\nx\r\n", times=MOST) == MOST
    asked.takes(b"0\r\n\r\n", times=1)
    assert asked.answer.result() == Answer(
        200, {"transfer-encoding": "chunked"}, b"x" * MOST, cut=False
    )
    assert asked.released


@pytest.mark.parametrize("length", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
@looped
async def test_an_answer_that_breaks_off_is_its_status(length: bytes) -> None:
    asked = Asked()
    asked.takes(OK + length + b"\r\nConnection: close\r\n\r\n5\r\nab", times=1)
    asked.connection.connection_lost(None)
    found = asked.answer.result()
    assert (found.status, found.cut) == (200, True)
    assert not asked.released


@looped
async def test_a_status_line_that_breaks_off_is_no_answer() -> None:
    asked = Asked()
    asked.takes(OK[:-4], times=1)
    asked.connection.connection_lost(None)
    assert "before the answer ended" in asked.failure()


@looped
async def test_a_late_farewell_is_no_stray_answer() -> None:
    asked = Asked()
    asked.takes(OK + b"Content-Length: 0\r\n\r\n", times=1)
    asked.takes(b"HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\n", times=1)
    assert asked.transport.closed
    assert not asked.connection.strayed


@looped
async def test_line_ends_after_an_answer_are_overlooked() -> None:
    asked = Asked()
    asked.takes(OK + b"Content-Length: 0\r\n\r\n", times=1)
    assert asked.takes(b"\r\n", times=1) == 1
    assert not asked.transport.closed


@looped
async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    asked = Asked()
    asked.takes(OK + b"\r\nab", times=1)
    asked.connection.connection_lost(None)
    assert asked.answer.result().excerpt == b"ab"


@looped
async def test_what_comes_behind_an_answer_is_none_to_the_next_request() -> None:
    asked = Asked()
    asked.takes(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" + OK + b"Content-Le", times=1)
    assert asked.answer.result().status == 503
    assert asked.transport.closed
