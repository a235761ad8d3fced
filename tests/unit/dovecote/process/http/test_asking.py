"""A server that is asked over HTTP may answer anything: one error says what is no answer."""

import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from dovecote.process.http.asking import ask, body_of, json_of
from dovecote.push.client import Api
from outbox.errors import DovecoteError
from tests.support.raw_answers import DEEP, ODD, answering, whole
from tests.support.waiting import patient


def asked(url: str, most: int | None = None) -> bytes:
    return ask(Request(url), patient(5), most)  # noqa: S310  # on loopback


@pytest.mark.parametrize("answer", ["no HTTP", "nothing", "cut off"])
def test_what_is_no_whole_answer_is_an_error_of_the_system(answer: str) -> None:
    with answering(ODD[answer]) as url, pytest.raises(OSError, match=r"\w"):
        asked(url)


def test_the_body_of_an_error_is_what_came_of_it() -> None:
    with answering(ODD["an error that is cut off"]) as url:
        with pytest.raises(HTTPError) as found:
            asked(url)
        assert body_of(found.value, 1_000) == b""


def test_a_body_is_cut_at_the_most_and_json_may_be_nested_too_deeply() -> None:
    with answering(whole(b"12345")) as url:
        assert asked(url, 3) == b"123"
        assert json_of(asked(url)) == 12345
    with answering(DEEP) as url, pytest.raises(ValueError, match="too deeply"):
        json_of(asked(url))


@pytest.mark.parametrize("status", [b"200 OK", b"503 no"])
def test_a_body_that_comes_drop_by_drop_has_its_time(
    status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovecote.process.http.asking._ERROR_SECONDS", 0.2)
    gone, done = threading.Event(), threading.Event()

    def drops() -> Iterator[bytes]:
        try:
            while not done.wait(0.01):
                yield b"."
        finally:
            gone.set()

    beginning = b"HTTP/1.1 " + status + b"\r\n\r\n"
    with answering(beginning, drops()) as url:
        try:
            if status.startswith(b"200"):
                with pytest.raises(TimeoutError, match=r"takes longer than 0\.2 s"):
                    ask(Request(url), 0.2)  # noqa: S310  # on loopback
            else:
                with pytest.raises(HTTPError) as found:
                    ask(Request(url), 0.2)  # noqa: S310  # as above
                assert body_of(found.value, 10_000_000) == b""
        finally:
            done.set()
    assert gone.wait(patient(5))


def test_a_body_that_ends_before_its_length_is_no_whole_answer() -> None:
    with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345") as url,
        pytest.raises(OSError, match="IncompleteRead"),
    ):
        asked(url)


@pytest.mark.parametrize("answer", ODD)
def test_the_client_of_push_says_what_is_wrong(answer: str) -> None:
    with answering(ODD[answer]) as url, pytest.raises(DovecoteError):
        Api(url, None)("GET", "/subscriptions")
