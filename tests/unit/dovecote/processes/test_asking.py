"""A process that stops in the middle of a request holds nobody up."""

import asyncio

from dovecote.processes.asking import Request, ask
from tests.support.waiting import patient

_LARGE = 16_000_000


def test_a_request_ends_although_its_process_reads_no_more_of_the_body() -> None:
    async def test() -> None:
        stopped, over = asyncio.Event(), asyncio.Event()

        async def process(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # The reader takes twice its limit, and nothing more until somebody reads from it.
            stopped.set()
            await over.wait()
            writer.transport.abort()

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": bytes(_LARGE), "more_body": False}

        async with await asyncio.start_server(process, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            request = Request("POST", "/", length=str(_LARGE))
            asking = asyncio.create_task(ask(port, request, receive, _LARGE))
            await stopped.wait()
            done, _ = await asyncio.wait({asking}, timeout=0.5)
            assert not done
            asking.cancel()
            done, _ = await asyncio.wait({asking}, timeout=patient(5))
            over.set()
            assert done

    asyncio.run(test())
