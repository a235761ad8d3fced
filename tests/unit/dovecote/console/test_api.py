"""The API lets in whom it should, and its answers are those of the contract."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.console_demo import demo
from tests.support.waiting import patient

CHOSEN = {"letters": [{"part": "consumer/shipping", "place": "shipping.dead/0/0"}]}


def asked(
    url: str, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=patient(10))
    sent = {"content-type": "application/json", **headers}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    is_json = answer.headers.get_content_type() == "application/json"
    found = {name.lower(): value for name, value in answer.headers.items()}
    return answer.status, json.loads(text) if is_json else text.decode(), found


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with demo(tokens=True) as url:
        yield url


def test_without_a_token_nothing_is_shown(guarded: str) -> None:
    for path in ("/api/flow", "/api/me", "/api/log", "/api/dead", "/api/part?id=outbox/shop"):
        status, told, headers = asked(guarded, "GET", path)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert told["error"]
        assert told["todo"]
    wrong = asked(guarded, "GET", "/api/flow", authorization="Bearer wrong")
    assert wrong[0] == 401


def test_a_reader_looks_and_only_a_writer_drops(guarded: str) -> None:
    reader, writer = "Bearer reader-token", "Bearer writer-token"
    assert asked(guarded, "GET", "/api/me", authorization=reader)[1]["rights"] == ["read"]
    status, told, _ = asked(guarded, "POST", "/api/dead/drop", CHOSEN, authorization=reader)
    assert status == 403
    assert "lacks the right write" in told["error"]
    status, told, _ = asked(guarded, "POST", "/api/dead/drop", CHOSEN, authorization=writer)
    assert (status, told["done"][0]["what"]) == (200, "dropped")
    entries = asked(guarded, "GET", "/api/log", authorization=reader)[1]["entries"]
    assert [(each["by"], each["outcome"]) for each in entries] == [
        ("writer", "dropped"),
        ("writer", "begun"),
    ]


def test_the_page_runs_nothing_from_elsewhere_and_no_other_site_may_ask(guarded: str) -> None:
    status, text, headers = asked(guarded, "GET", "/")
    assert (status, "<html" in text) == (200, True)
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert asked(guarded, "GET", "/page.js")[2]["content-type"].startswith("text/javascript")
    for told in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        assert asked(guarded, "GET", "/api/flow", **told)[0] == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/part?id=none", 404),
        ("/api/history?id=none", 404),
        ("/api/history?id=outbox/shop&minutes=0", 422),
        ("/api/find", 422),
        ("/api/find?id=a&key=b", 422),
        ("/api/dead?since=yesterday", 422),
        ("/api/dead?limit=100000", 422),
        ("/api/nothing", 404),
        ("/../settings.py", 404),
    ],
)
def test_bad_requests_are_answered_with_what_to_do(path: str, status: int) -> None:
    with demo() as url:
        found, told, _ = asked(url, "GET", path)
    assert found == status
    assert told["error"]
    assert told["todo"]


def test_a_body_that_is_too_long_or_of_another_form_is_refused() -> None:
    with demo() as url:
        # The answer comes before the body, which a client might still be sending.
        assert asked(url, "POST", "/api/dead/drop", **{"content-length": "900000"})[0] == 413
        assert asked(url, "POST", "/api/dead/drop", {"letters": []})[0] == 422
        assert asked(url, "POST", "/api/dead/drop", {"all": True})[0] == 422


def test_a_local_console_is_read_only_unless_it_may_write() -> None:
    with demo(write=False) as url:
        status, told, _ = asked(url, "POST", "/api/dead/requeue", CHOSEN)
        assert asked(url, "GET", "/api/me")[1]["rights"] == ["read"]
    assert status == 403
    assert "write = true" in told["todo"]


def test_a_large_flow_is_answered_within_a_second() -> None:
    with demo(subscriptions=2_000, topics=500) as url:
        began = perf_counter()
        status, told, headers = asked(url, "GET", "/api/flow")
        assert perf_counter() - began < patient(1)
    assert status == 200
    assert len(told["nodes"]) > 2_500
    assert int(headers["content-length"]) < 1_000_000
