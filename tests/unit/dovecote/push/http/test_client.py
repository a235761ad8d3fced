"""The client against servers that answer within the rules of HTTP, and outside them."""

import asyncio
import time
from collections import Counter

import pytest

from dedup.rules.identity import Identity
from dovecote.push.http.client import Client, Patience
from dovecote.push.http.connection import SendFailed
from dovecote.push.http.guard import Guard
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.request import Composer, Form
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


@pytest.mark.parametrize(
    ("reply", "status", "body"),
    [
        (DONE, 204, b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (
            b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n1\r\n!\r\n0\r\n\r\n",
            500,
            b"no!",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + DONE, 204, b""),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            302,
            b"",
        ),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", 304, b""),
    ],
)
def test_answers_are_read_whole_and_their_connection_is_kept(
    reply: bytes, status: int, body: bytes
) -> None:
    async def talk(client: Client, server: Server) -> None:
        for _ in range(3):
            answer = await client.send(REQUEST)
            assert (answer.status, answer.excerpt) == (status, body)
        assert server.connections == 1

    talking(reply, talk)


def test_a_request_has_its_headers_once_and_its_length() -> None:
    async def talk(client: Client, server: Server) -> None:
        await client.send(REQUEST, (("webhook-id", "e1"),))
        (head,) = server.heads
        assert head.startswith(b"POST /hook HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port)
        assert head.count(b"\r\nContent-Length: 4\r\n") == 1
        assert head.count(b"\r\nwebhook-id: e1\r\n") == 1

    talking(DONE, talk)


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")

    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 204
        assert server.connections == 1

    talking(DONE, talk)


def test_no_header_can_begin_another() -> None:
    async def talk(client: Client, server: Server) -> None:
        for bad in ("x\r\nX: y", "x\ny", "x\ry"):
            with pytest.raises(ValueError, match="end of a line"):
                await client.send(REQUEST, (("X-Bad", bad),))
        assert server.heads == []

    talking(DONE, talk)


def test_the_answer_to_head_has_no_body_however_long_it_says_it_is() -> None:
    async def talk(client: Client, server: Server) -> None:
        for _ in range(3):
            answer = await client.send(REQUEST)
            assert (answer.status, answer.excerpt) == (200, b"")
        assert server.connections == 1

    talking(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", talk, method="HEAD")


def test_a_body_may_end_with_its_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        writer.close()

    async def talk(client: Client, server: Server) -> None:
        for _ in range(2):
            assert (await client.send(REQUEST)).excerpt == b"all of it"
        assert server.connections == 2

    talking(script, talk)


def test_a_long_body_is_cut_and_its_connection_closed() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"

    async def talk(client: Client, server: Server) -> None:
        for _ in range(2):
            answer = await client.send(REQUEST)
            assert (answer.status, answer.cut, answer.excerpt) == (200, True, b"x" * 1024)
        assert server.connections == 2

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(head + b"x" * 1000)
        await writer.drain()
        writer.write(b"x" * 50)
        await reader.read()

    talking(script, talk)


def test_each_request_on_a_kept_connection_has_the_whole_time_for_its_answer() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(DONE)
        await asked(reader)
        await reader.read()

    async def test() -> None:
        async with Server(script) as server:
            hasty = Patience(connect=5.0, whole=1.0)
            client = Client(Form(url=server.url), Guard(LOOPBACK), hasty)
            assert (await client.send(REQUEST)).status == 204
            began = time.monotonic()
            told = await asyncio.gather(
                *(client.send(REQUEST) for _ in range(2)), return_exceptions=True
            )
            assert [type(each) for each in told] in ([SendFailed, Answer], [Answer, SendFailed])
            assert time.monotonic() - began >= 1.0
            await client.close()

    run(test)


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_and_nobody_notices() -> None:
    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 204
        assert (await client.send(REQUEST)).status == 204
        assert server.connections == 2

    talking(answers_once, talk)


def test_a_server_that_closes_behind_each_answer_costs_no_request() -> None:
    # uvicorn without keep-alive: the answer promises to keep the connection.
    got: Counter[bytes] = Counter()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asked(reader)
        got[head.split(b"\r\nwebhook-id: ")[1].split(b"\r\n")[0]] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async def talk(client: Client, _: Server) -> None:
        async def many(lane: int) -> None:
            for number in range(50):
                answer = await client.send(REQUEST, (("webhook-id", f"{lane}-{number}"),))
                assert answer.status == 200

        await asyncio.gather(*(many(lane) for lane in range(20)))
        assert len(got) == 1000
        assert max(got.values()) == 1

    talking(script, talk)


def test_a_kept_connection_that_was_closed_before_a_request_counts_as_not_sent() -> None:
    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 204
        (kept,) = client._open  # closes as a server's FIN does
        kept.close()
        assert (await client.send(REQUEST)).status == 204
        assert server.connections == 2

    talking(DONE, talk)


def test_a_408_that_says_a_kept_connection_was_idle_is_no_answer_to_the_request() -> None:
    late = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(DONE)
        await asked(reader)
        writer.write(late)
        writer.close()

    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 204
        assert (await client.send(REQUEST)).status == 204
        assert server.connections == 2

    talking(script, talk)


def test_a_408_on_a_new_connection_is_an_answer() -> None:
    late = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 408
        assert server.connections == 1

    talking(late, talk)


def test_a_request_is_sent_twice_at_most_however_often_its_connection_is_closed() -> None:
    heads: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await asked(reader))
        if len(heads) == 1:
            writer.write(DONE)
            heads.append(await asked(reader))
        writer.close()

    async def talk(client: Client, server: Server) -> None:
        assert (await client.send(REQUEST)).status == 204
        with pytest.raises(SendFailed, match="closed"):
            await client.send(REQUEST)
        assert (len(heads), server.connections) == (3, 2)

    talking(script, talk)


def test_a_new_connection_that_is_closed_without_an_answer_is_a_failure() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.close()

    async def talk(client: Client, server: Server) -> None:
        with pytest.raises(SendFailed, match="closed"):
            await client.send(REQUEST)
        assert server.connections == 1

    talking(script, talk)


def test_as_many_connections_are_made_as_there_are_requests_at_a_time() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asked(reader)
            await asyncio.sleep(0.05)
            writer.write(DONE)

    async def talk(client: Client, server: Server) -> None:
        for _ in range(3):
            answers = await asyncio.gather(*(client.send(REQUEST) for _ in range(50)))
            assert {each.status for each in answers} == {204}
        assert server.connections == client.made == 50

    talking(script, talk)


def test_a_composed_request_comes_as_it_was_composed() -> None:
    async def talk(client: Client, server: Server) -> None:
        form = Form(url=server.url, method="GET")
        from outbox.envelope import Record

        request = Composer(form).request(
            Record("t", 0, 1, 0, None, b"a b&c", ()), Identity("/s", "e1")
        )
        await client.send(request)
        assert server.heads[0].startswith(b"GET /hook?message=a%20b%26c HTTP/1.1\r\n")
        assert b"Content-Length" not in server.heads[0]

    talking(DONE, talk, method="GET")
