"""Answers as the world writes them: the status line decides, and nothing is mixed up."""

import re
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovecote.push.rules.sending.answer import HEADER_BYTES, Answer, AnswerReader, whole

OK = b"HTTP/1.1 200 OK\r\n"
TWO = b"Content-Length: 2\r\n\r\nok"
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"
MOST = 1_000
Test = TypeVar("Test", bound=Callable[..., None])
BREAKS = "the connection was closed"


def read(*pieces: bytes, bodyless: bool = False, cleanly: bool = True) -> AnswerReader:
    """Read pieces of an answer, and then the end of the connection."""
    reader = AnswerReader(most=MOST, bodyless=bodyless)
    for each in pieces:
        if reader.feed(each):
            break
    if not reader.done:
        reader.end(BREAKS, cleanly=cleanly)
    return reader


# curl takes all of these. The third is the beginning of the body, the fourth whether the
# connection can be used again.
ODD = {
    "plain": (OK + TWO, 200, b"ok", True),
    "no reason": (b"HTTP/1.1 200\r\n" + TWO, 200, b"ok", True),
    "a reason in Latin-1": (b"HTTP/1.1 200 Tr\xe8s bien\r\n" + TWO, 200, b"ok", True),
    "a value in Latin-1": (OK + b"X: caf\xe9\r\n" + TWO, 200, b"ok", True),
    "a line end before": (b"\r\n" + OK + TWO, 200, b"ok", True),
    "a line end after": (OK + TWO + b"\r\n", 200, b"ok", True),
    "an offer of another": (
        OK + b"Connection: upgrade\r\nUpgrade: x\r\n" + TWO,
        200,
        b"ok",
        True,
    ),
    "500 headers": (OK + b"X: 1\r\n" * 500 + TWO, 200, b"ok", True),
    "an extension of a chunk": (OK + CHUNKS + b"2;a=b\r\nok\r\n0\r\n\r\n", 200, b"ok", True),
    "a trailer": (OK + CHUNKS + b"2\r\nok\r\n0\r\nX: 1\r\n\r\n", 200, b"ok", True),
    "100 before": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + TWO, 200, b"ok", True),
    "103 before": (b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK + TWO, 200, b"ok", True),
    "1.0, kept": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + TWO, 200, b"ok", True),
    "304 with a length": (b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "identity": (OK + b"Transfer-Encoding: identity\r\n" + TWO, 200, b"ok", True),
    "bare line ends": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok", False),
    "mixed line ends": (b"HTTP/1.1 200 OK\nServer: GoAhead\r\n" + TWO, 200, b"ok", False),
    "two CR": (b"HTTP/1.1 200 OK\r\r\nContent-Length: 2\r\r\n\r\r\nok", 200, b"ok", False),
    "length and chunks": (
        OK + b"Content-Length: 9\r\n" + CHUNKS + b"2\r\nok\r\n0\r\n\r\n",
        200,
        b"ok",
        False,
    ),
    "a length twice": (OK + b"Content-Length: 2\r\n" + TWO, 200, b"ok", False),
    "a length in a list": (OK + b"Content-Length: 2, 2\r\n\r\nok", 200, b"ok", False),
    "two lengths": (OK + b"Content-Length: 3\r\n" + TWO, 200, b"", False),
    "a length of a word": (OK + b"Content-Length: two\r\n\r\nok", 200, b"", False),
    "a length below 0": (OK + b"Content-Length: -2\r\n\r\nok", 200, b"", False),
    "a length of other digits": (OK + b"Content-Length: \xb2\r\n\r\nok", 200, b"", False),
    "a huge length": (OK + b"Content-Length: " + b"9" * 99 + b"\r\n\r\nok", 200, b"", False),
    "a folded header": (OK + b"X: a\r\n b\r\n" + TWO, 200, b"ok", False),
    "a folded length": (OK + b"Content-Length:\r\n 2\r\n\r\nok", 200, b"ok", False),
    "nothing to fold": (OK + b" X: 1\r\n" + TWO, 200, b"ok", False),
    "a blank before the colon": (OK + b"X : 1\r\n" + TWO, 200, b"ok", False),
    "many folds": (OK + b"X: 1\r\n" + b" \r\n" * 15_000 + TWO, 200, b"ok", False),
    "many blanks": (OK + b"X:" + b" " * 50_000 + b"\1\r\n" + TWO, 200, b"ok", False),
    "no colon": (OK + b"nonsense\r\n" + TWO, 200, b"ok", False),
    "no name": (OK + b": x\r\n" + TWO, 200, b"ok", False),
    "a control byte": (OK + b"Set-Cookie: a=\x01b\r\n" + TWO, 200, b"ok", False),
    "a NUL": (OK + b"X: a\0b\r\n" + TWO, 200, b"ok", False),
    "a CR in a value": (OK + b"X: a\rb\r\n" + TWO, 200, b"ok", False),
    "a blank after a size": (OK + CHUNKS + b"2  \r\nok\r\n0\r\n\r\n", 200, b"ok", False),
    "chunks with bare line ends": (OK + CHUNKS + b"2\nok\n0\n\n", 200, b"ok", False),
    "chunks without the last": (OK + CHUNKS + b"2\r\nok\r\n", 200, b"ok", False),
    "a size that is none": (OK + CHUNKS + b"0x2\r\nok\r\n0\r\n\r\n", 200, b"", False),
    "a chunk without its end": (OK + CHUNKS + b"2\r\nok0\r\n\r\n", 200, b"ok", False),
    "chunks of 1.0": (
        b"HTTP/1.0 200 OK\r\n" + CHUNKS + b"2\r\nok\r\n0\r\n\r\n",
        200,
        b"ok",
        False,
    ),
    "lower case": (b"http/1.1 200 ok\r\n" + TWO, 200, b"ok", True),
    "1.0": (b"HTTP/1.0 200 OK\r\n" + TWO, 200, b"ok", False),
    "1.0, closed": (b"HTTP/1.0 200 OK\r\n\r\nok", 200, b"ok", False),
    "2.0": (b"HTTP/2.0 200 OK\r\n" + TWO, 200, b"ok", False),
    "2": (b"HTTP/2 200\r\n" + TWO, 200, b"ok", False),
    "no blank after the status": (b"HTTP/1.1 200OK\r\n" + TWO, 200, b"ok", True),
    "closed": (OK + b"Connection: close\r\n" + TWO, 200, b"ok", False),
    "closed, in a list": (OK + b"Connection: x, Close\r\n" + TWO, 200, b"ok", False),
    "the end is its end": (OK + b"\r\nok", 200, b"ok", False),
    "204 with a body": (b"HTTP/1.1 204 No\r\n\r\nok", 204, b"", False),
    "204 with a length": (b"HTTP/1.1 204 No\r\n" + TWO, 204, b"", False),
    "204 with chunks": (b"HTTP/1.1 204 No\r\n" + CHUNKS + b"0\r\n\r\n", 204, b"", False),
    "cut short": (OK + b"Content-Length: 10\r\n\r\nok", 200, b"ok", False),
    "cut in its head": (OK + b"Content-Le", 200, b"", False),
    "its status alone": (b"HTTP/1.1 503 No\r\n", 503, b"", False),
    "a byte more": (OK + TWO + b"x", 200, b"ok", False),
    "two answers": (OK + TWO + b"HTTP/1.1 500 No\r\n\r\n", 200, b"ok", False),
    "long headers": (OK + b"X: " + b"y" * 200_000 + b"\r\n" + TWO, 200, b"", False),
    "many headers": (OK + b"X: 1\r\n" * 20_000 + TWO, 200, b"", False),
    "a long body": (OK + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, 200, b"x" * 1001, False),
    "999": (b"HTTP/1.1 999 No\r\n" + TWO, 999, b"ok", True),
}


@pytest.mark.parametrize(("data", "status", "body", "again"), ODD.values(), ids=ODD)
def test_the_status_line_decides_whatever_follows(
    data: bytes, status: int, body: bytes, again: object
) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(min(len(data), 70_000))]):
        reader = read(*pieces)
        assert (reader.failure, reader.answer.status, reader.answer.excerpt) == ("", status, body)
        # Byte by byte, what comes after an answer comes to an idle connection.
        assert reader.reusable == again or len(pieces) > 1


NONE = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a body alone": b"ok",
    "a word before": b"Warning: x\r\n" + OK + TWO,
    "two digits": b"HTTP/1.1 20 OK\r\n" + TWO,
    "four digits": b"HTTP/1.1 2000 OK\r\n" + TWO,
    "no status": b"HTTP/1.1 099 OK\r\n" + TWO,
    "no version": b"HTTP 200 OK\r\n" + TWO,
    "nothing": b"",
    "half a status line": b"HTTP/1.1 200 O",
    "100 alone": b"HTTP/1.1 100 Continue\r\n\r\n",
    "100 without an end": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "line ends alone": b"\r\n" * HEADER_BYTES,
    "a switch of protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
}


@pytest.mark.parametrize("data", NONE.values(), ids=NONE)
def test_without_a_status_line_there_is_no_answer(data: bytes) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        reader = read(*pieces)
        assert reader.failure
        assert not reader.reusable


def test_another_protocol_is_noticed_before_its_line_ends() -> None:
    assert AnswerReader(most=MOST, bodyless=False).feed(b"SSH-2.0")


def test_headers_that_came_before_the_answer_broke_off_count() -> None:
    reader = read(b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nRetry-After: 9\r\nX: ")
    assert reader.answer.headers["retry-after"] == "7"
    assert reader.answer.cut


def test_the_answer_to_head_has_no_body_however_long_it_says_it_is() -> None:
    reader = read(OK + b"Content-Length: 500\r\n\r\n", bodyless=True)
    assert (reader.answer.status, reader.reusable) == (200, True)


PIECES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            *(OK, TWO, CHUNKS, b"\r\n", b"\n", b"\r", b" ", b"0\r\n\r\n", b"2\r\nok\r\n"),
            *(b"HTTP/1.", b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"ok"),
            *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Content-Length: 0\r\n"),
            *(b"Content-Length:", b" 2\r\n", b": \r\n", b"X: 1\r\n", b"\0", b"HTTP/1.0 500\r\n"),
        ]
    ),
)
ANSWERS = st.lists(PIECES, max_size=12).map(b"".join)
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-9]\d\d)(?!\d)[^\n]*\n")


def with_seeds(test: Test) -> Test:
    """Give a test the odd answers as examples, too."""
    for data, *_ in ODD.values():
        if len(data) < HEADER_BYTES / 10:
            test = example(data, 1)(test)
    return test


@settings(deadline=None, derandomize=True, max_examples=300)
@with_seeds
@given(ANSWERS | ANSWERS.map(OK.__add__), st.integers(1, 40))
def test_any_bytes_are_an_answer_or_none_and_pieces_make_no_difference(
    data: bytes, size: int
) -> None:
    at_once = read(data)
    in_pieces = read(*(data[at : at + size] for at in range(0, len(data), size)))
    assert at_once.failure == in_pieces.failure
    assert at_once.done is in_pieces.done is True
    if not at_once.failure:
        assert at_once.answer == in_pieces.answer
    if (found := STATUS_LINE.match(data)) is not None:
        assert at_once.answer.status == int(found[1])
    if (short := whole(data, most=MOST, bodyless=False)) is not None:
        assert short == at_once.answer
        assert at_once.reusable


def test_the_short_way_is_taken() -> None:
    found = whole(OK + b"Date: x\r\nA: 1\r\na: 2\r\n" + TWO, most=MOST, bodyless=False)
    headers = {"date": "x", "a": "1", "content-length": "2"}
    assert found == Answer(200, headers, b"ok")
