"""Each host is looked up apart from the others, and once for all that wait for it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dovecote.push.http.guard import Unresolved, resolve
from tests.support.http_servers import run
from tests.support.waiting import patient

_REQUESTS = 100


class _Silent:
    """A name server that answers for one host only when it is told to."""

    def __init__(self) -> None:
        self.answers, self.asked = threading.Event(), 0
        self._lookup = socket.getaddrinfo

    def __call__(self, host: str, *args: Any, **more: Any) -> Any:
        if host != "silent.example":
            return self._lookup(host, *args, **more)
        self.asked += 1
        self.answers.wait(patient(60))
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Silent]:
    server = _Silent()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answers.set()


def test_a_name_server_that_is_silent_keeps_no_other_host_waiting(silent: _Silent) -> None:
    async def test() -> None:
        waiting = [asyncio.create_task(resolve("silent.example", 80)) for _ in range(_REQUESTS)]
        other = asyncio.create_task(resolve("localhost", 80))
        assert "127.0.0.1" in await asyncio.wait_for(other, patient(2))
        waiting[0].cancel()
        silent.answers.set()
        first, *others = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError)
        assert all(isinstance(each, Unresolved) for each in others)
        assert silent.asked == 1
        with pytest.raises(Unresolved, match="no name server"):
            await resolve("silent.example", 80)

    run(test)


def test_a_lookup_for_which_there_is_no_thread_is_a_host_without_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    async def test() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", full)
            with pytest.raises(Unresolved, match="new thread"):
                await resolve("localhost", 80)
        assert "127.0.0.1" in await resolve("localhost", 80)

    run(test)
