"""A server that is asked over HTTP may answer anything: one error says what is no answer."""

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


@pytest.mark.parametrize("answer", ODD)
def test_the_client_of_push_says_what_is_wrong(answer: str) -> None:
    with answering(ODD[answer]) as url, pytest.raises(DovecoteError):
        Api(url, None)("GET", "/subscriptions")
