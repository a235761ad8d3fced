"""No token keeps others from an answer, however many requests it sends at a time."""

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dovecote.push.api.access import hashed
from dovecote.push.api.app import application
from dovecote.push.rules.access.scope import everything
from dovecote.push.rules.access.shares import room_for, share_of
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


@contextmanager
def open_to(slow: Slow, *names: str) -> Iterator[TestClient]:
    control: Any = slow
    tokens = [(hashed(name), everything(name)) for name in names]
    app = application(control, tokens=tokens, max_body=100, note=lambda _: None)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@pytest.fixture
def client(slow: Slow) -> Iterator[TestClient]:
    with open_to(slow, "one", "other") as client:
        yield client


def ask(client: TestClient, token: str, path: str) -> int:
    return client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code


def test_slow_requests_of_a_token_wait_for_each_other_and_others_do_not(
    slow: Slow, client: TestClient
) -> None:
    path, (at_once, waiting) = "/subscriptions/x/attempts", share_of(2)
    both = at_once + waiting
    with ThreadPoolExecutor(both + 2) as pool:
        asked = [pool.submit(ask, client, "one", path) for _ in range(both + 1)]
        try:
            until(lambda: slow.begun == at_once, within=20, what="some are at work")
            (other,) = wait([pool.submit(ask, client, "other", "/subscriptions")], patient(10))[0]
            assert other.result() == 200
            (refused,) = wait(asked, patient(20), FIRST_COMPLETED)[0]
            assert refused.result() == 429
            assert slow.begun == at_once
        finally:
            slow.go.set()
        assert sorted(each.result() for each in asked) == [*[200] * both, 429]
    assert ask(client, "one", "/subscriptions") == 200


def test_several_tokens_together_keep_no_other_from_an_answer(slow: Slow) -> None:
    names, path = ["a", "b", "c", "d", "e"], "/subscriptions/x/attempts"
    at_once, waiting = share_of(len(names) + 1)
    with (
        open_to(slow, *names, "other") as client,
        ThreadPoolExecutor(len(names) * (at_once + waiting) + 1) as pool,
    ):
        for name in names:
            for _ in range(at_once + waiting):
                pool.submit(ask, client, name, path)
        try:
            until(lambda: slow.begun == at_once * len(names), within=20, what="all are at work")
            asked = [pool.submit(ask, client, "other", "/subscriptions")]
            (other,) = wait(asked, patient(10))[0]
            assert other.result() == 200
        finally:
            slow.go.set()


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 7, 32, 33, 100, 161, 1_000])
def test_the_shares_of_all_tokens_leave_a_reserve(tokens: int) -> None:
    (at_once, waiting), room = share_of(tokens), room_for(tokens)
    assert at_once >= 1
    assert waiting >= 0
    assert tokens * (at_once + waiting) + 40 <= room.requests
    assert tokens * at_once + 8 <= room.threads
