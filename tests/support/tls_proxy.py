"""TLS in front of a Postgres that was built without it."""

import asyncio
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dovecote.devstack.places import LOOPBACK
from tests.support.waiting import patient

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@contextmanager
def tls_in_front(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """Yield a port that speaks TLS like Postgres, and only TLS, for the server on `port`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="tls")
    thread.start()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
                return
            writer.write(b"S")
            await writer.start_tls(context)
            behind = await asyncio.open_connection(LOOPBACK, port)
            await asyncio.gather(_pump(reader, behind[1]), _pump(behind[0], writer))
        except (OSError, asyncio.IncompleteReadError):
            return  # a client that does not trust us has gone
        finally:
            writer.close()

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(forward, LOOPBACK, 0)

    async def end(server: asyncio.Server) -> None:
        server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(patient(10))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(server), loop).result(patient(10))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
