"""No token keeps others from an answer, however many requests it sends at a time."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dovecote.push.api.access import hashed
from dovecote.push.api.app import application
from dovecote.push.api.caller import AT_ONCE, WAITING
from dovecote.push.rules.access.scope import everything
from tests.support.waiting import patient, until


class Slow:
    """Operations of which one takes as long as the test wants."""

    def __init__(self) -> None:
        self.begun, self.go = 0, threading.Event()
        self._lock = threading.Lock()

    def attempts(self, _caller: object, _id: str) -> list[Any]:
        with self._lock:
            self.begun += 1
        self.go.wait(patient(60))
        return []

    def all(self, _caller: object) -> list[Any]:
        return []


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def client(slow: Slow) -> Iterator[TestClient]:
    control: Any = slow
    tokens = [(hashed(name), everything(name)) for name in ("one", "other")]
    app = application(control, tokens=tokens, max_body=100, note=lambda _: None)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def ask(client: TestClient, token: str, path: str) -> int:
    return client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code


def test_slow_requests_of_a_token_wait_for_each_other_and_others_do_not(
    slow: Slow, client: TestClient
) -> None:
    path = "/subscriptions/x/attempts"
    with ThreadPoolExecutor(AT_ONCE + WAITING + 1) as pool:
        asked = [pool.submit(ask, client, "one", path) for _ in range(AT_ONCE + WAITING)]
        try:
            until(lambda: slow.begun == AT_ONCE, within=20, what="some are at work")
            (other,) = wait([pool.submit(ask, client, "other", "/subscriptions")], patient(10))[0]
            assert other.result() == 200
            until(lambda: ask(client, "one", "/subscriptions") == 429, within=20, what="no more")
            assert slow.begun == AT_ONCE
        finally:
            slow.go.set()
        assert [each.result() for each in asked] == [200] * (AT_ONCE + WAITING)
    assert ask(client, "one", "/subscriptions") == 200
