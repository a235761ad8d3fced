"""HTTP servers that follow a script, and a client that talks to them."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self, TypeVar

import uvloop

from dovecote.push.http.client import Client, Patience
from dovecote.push.http.guard import Guard
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.request import Form, Request
from tests.support.waiting import patient

LOOPBACK = networks(["127.0.0.0/8"])
QUICK = Patience(connect=20.0, whole=20.0, most_bytes=1000)
REQUEST = Request("e1", "/hook", "Content-Type: text/plain\r\n", b"body")
DONE = b"HTTP/1.1 204 No Content\r\n\r\n"
T = TypeVar("T")
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Runs a script for each connection, and records what came."""

    def __init__(
        self,
        script: Script | bytes,
        context: ssl.SSLContext | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._script, self._context = script, context
        self._host, self.port = host, port
        self.connections = 0
        self.heads: list[bytes] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, self._host, self.port, ssl=self._context
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            if isinstance(self._script, bytes):
                while True:
                    self.heads.append(await asked(reader))
                    writer.write(self._script)
            await self._script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def asked(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if b"Content-Length: " in head:
        await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
    return head


async def answers_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the first request of a connection, and close it when the second has come."""
    await asked(reader)
    writer.write(DONE)
    await asked(reader)
    writer.close()


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        async with asyncio.timeout(patient(20)):
            return await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(within())


def talking(
    script: Script | bytes, talk: Callable[[Client, Server], Awaitable[T]], **form: str
) -> T:
    """Run `talk` with a client of a server."""

    async def test() -> T:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Server(script))
            client = Client(Form(url=server.url, **form), Guard(LOOPBACK), QUICK)  # type: ignore[arg-type]  # of text alone
            stack.push_async_callback(client.close)
            return await talk(client, server)

    return run(test)
