"""Requests that are begun on a kept connection, whose answers call back."""

import asyncio
from typing import TypeAlias

import pytest

from dovecote.push.http.client import Client, Patience
from dovecote.push.http.connection import SendFailed, Stale
from dovecote.push.http.guard import Guard
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.request import Form
from tests.support.http_servers import (
    DONE,
    LOOPBACK,
    REQUEST,
    Server,
    answers_once,
    asked,
    run,
    talking,
)
from tests.support.waiting import patient

Found: TypeAlias = Answer | SendFailed


async def begun(client: Client) -> Found:
    """Begin a request, and return what comes of it."""
    came: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    assert client.begin(client.message(REQUEST), came.set_result)
    return await asyncio.wait_for(came, patient(10))


def test_a_request_is_begun_on_a_kept_connection_and_on_no_other() -> None:
    async def talk(client: Client, server: Server) -> None:
        assert not client.is_ready
        assert not client.begin(client.message(REQUEST), lambda _: None)
        await client.send(REQUEST)
        for _ in range(3):
            assert client.is_ready
            assert await begun(client) == Answer(204)
        assert server.connections == 1
        assert server.heads[0] == server.heads[-1]

    talking(DONE, talk)


def test_what_an_answer_calls_can_use_its_connection_at_once() -> None:
    async def talk(client: Client, server: Server) -> None:
        await client.send(REQUEST)
        last: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        left = [1, 2, 3]

        def took(found: Found) -> None:
            if not left:
                last.set_result(found)
                return
            left.pop()
            assert client.begin(client.message(REQUEST), took)

        took(Answer(204))
        assert await asyncio.wait_for(last, patient(10)) == Answer(204)
        assert (server.connections, len(server.heads)) == (1, 4)

    talking(DONE, talk)


def test_a_kept_connection_that_the_server_has_closed_costs_no_attempt() -> None:
    async def talk(client: Client, server: Server) -> None:
        await client.send(REQUEST)
        found = await begun(client)
        assert isinstance(found, Stale)
        assert await client.after(found, client.message(REQUEST)) == Answer(204)
        assert server.connections == 2

    talking(answers_once, talk)


def test_a_server_that_says_farewell_is_asked_again() -> None:
    async def talk(client: Client, _: Server) -> None:
        found = Answer(408, {"connection": "close"})
        assert await client.after(found, client.message(REQUEST)) == Answer(204)
        assert await client.after(Answer(500), b"") == Answer(500)
        with pytest.raises(SendFailed, match="odd"):
            await client.after(SendFailed("odd"), b"")

    talking(DONE, talk)


def test_requests_that_are_begun_as_others_end_have_their_whole_time() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(DONE)
        await reader.read()

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with Server(script) as server:
            client = Client(Form(url=server.url), Guard(LOOPBACK), Patience(whole=1.0))
            told = await asyncio.gather(*(client.send(REQUEST) for _ in range(3)))
            assert told == [Answer(204)] * 3
            took: list[tuple[float, Found]] = []
            ended = asyncio.Event()
            began = loop.time()

            def last(found: Found) -> None:
                took.append((loop.time() - began, found))
                ended.set()

            def first(found: Found) -> None:
                took.append((loop.time() - began, found))
                assert client.begin(client.message(REQUEST), last)

            assert client.begin(client.message(REQUEST), first)
            assert client.begin(client.message(REQUEST), lambda _: None)
            await asyncio.wait_for(ended.wait(), patient(10))
            await client.close()
        (at_first, one), (at_last, two) = took
        assert isinstance(one, SendFailed)
        assert isinstance(two, SendFailed)
        assert at_first >= 0.99
        assert at_last - at_first >= 0.99

    run(test)
