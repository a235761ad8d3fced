"""The client against servers whose answers are odd, late, left over, or none."""

import asyncio

import pytest

from dovecote.push.http.client import Client, Patience
from dovecote.push.http.connection import SendFailed
from dovecote.push.http.guard import Guard
from dovecote.push.rules.sending.request import Form
from tests.support.http_servers import (
    DONE,
    LOOPBACK,
    REQUEST,
    Server,
    asked,
    run,
    talking,
)


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 20",
    ],
)
def test_what_is_no_answer_fails(reply: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(reply)
        writer.close()

    async def talk(client: Client, _: Server) -> None:
        with pytest.raises(SendFailed):
            await client.send(REQUEST)

    talking(script, talk)


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 3),
        (b"HTTP/1.1 200 OK\r\nContent-Length: nonsense\r\n\r\n", 3),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 3),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n", 1),
    ],
)
def test_an_odd_answer_is_taken_and_ends_its_connection_if_it_has_to(
    reply: bytes, connections: int
) -> None:
    async def talk(client: Client, server: Server) -> None:
        for _ in range(3):
            assert (await client.send(REQUEST)).status == 200
        assert server.connections == connections

    talking(reply, talk)


def test_an_answer_too_many_is_never_taken_for_another_and_connections_are_not_kept() -> None:
    # Each request is answered 200, and the answer that comes late is another one's.
    began = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal began
        while True:
            await asked(reader)
            began += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            if began == 1:
                writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")

    async def talk(client: Client, server: Server) -> None:
        for _ in range(3):
            assert (await client.send(REQUEST)).status == 200
        assert server.connections == 3

    talking(script, talk)


def test_bytes_before_an_answer_are_left_over_and_the_request_is_sent_again() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(DONE)
        await asked(reader)
        writer.write(b"left over" + DONE)
        await reader.read()

    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 204
        assert (await client.send(REQUEST)).status == 204
        assert (await client.send(REQUEST)).status == 204
        assert server.connections == 3

    talking(script, talk)


def test_the_answer_to_a_handshake_has_a_body_even_where_requests_are_head() -> None:
    async def talk(client: Client, server: Server) -> None:
        for _ in range(2):
            answer = await client.options("/hook", ())
            assert (answer.status, answer.excerpt) == (200, b"ok")
        assert server.connections == 1

    talking(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", talk, method="HEAD")


@pytest.mark.parametrize(
    ("trickle", "status"),
    [
        (b"", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", 200),
        (b"HTTP/1.1 503 No\r\nRetry-", 503),
    ],
)
def test_an_answer_that_does_not_end_in_time_is_its_status(
    trickle: bytes, status: int | None
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(trickle)
        await reader.read()

    async def test() -> None:
        async with Server(script) as server:
            hasty = Patience(connect=1.0, whole=0.1)
            client = Client(Form(url=server.url), Guard(LOOPBACK), hasty)
            if status is None:
                with pytest.raises(SendFailed, match=r"within 0\.1 s"):
                    await client.send(REQUEST)
            else:
                answer = await client.send(REQUEST)
                assert (answer.status, answer.cut) == (status, True)
            await client.close()

    run(test)
