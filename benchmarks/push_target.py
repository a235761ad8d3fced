"""A cheap HTTP endpoint, in its own process: fast, slow, failing, or silent."""

import asyncio
import json
import sys
import time
from array import array
from collections import Counter
from contextlib import nullcontext

import uvloop

from benchmarks.pushed import first

_DONE = b"HTTP/1.1 204 No Content\r\n\r\n"
_FAILED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_SLOW_SECONDS = 0.25
_MOST = 2_000_000


class Arrivals:
    """When the first request for each numbered record came, on the machine's monotonic clock."""

    def __init__(self) -> None:
        self.times = array("d", bytes(8 * _MOST))
        self.fast = self.repeated = 0
        self.requests: Counter[str] = Counter()
        self.began = self.ended = 0.0

    def came(self, number: int) -> None:
        now = time.monotonic()
        if self.times[number]:
            self.repeated += 1
            return
        self.times[number] = now
        self.fast += 1
        self.began = self.began or now
        self.ended = now

    def told(self, first: int, count: int) -> dict[str, object]:
        return {
            "fast": self.fast,
            "repeated": self.repeated,
            "seconds": self.ended - self.began,
            "requests": self.requests,
            "times": list(self.times[first : first + count]),
        }

    def begin_anew(self) -> None:
        self.__init__()  # type: ignore[misc]  # all of it, as at the beginning


class Requests(asyncio.Protocol):
    """One connection; pipelined requests are not expected, but answered."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP's

    def data_received(self, data: bytes) -> None:
        rest = self._rest + data if self._rest else data
        while (end := rest.find(b"\r\n\r\n")) >= 0:
            head = rest[:end]
            at = head.find(b"Content-Length: ")
            if at < 0:  # names of headers have no case, and some clients write small letters
                at = head.find(b"content-length: ")
            length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(rest) < end + 4 + length:
                break
            self._take(head, rest[end + 4 : end + 4 + length])
            rest = rest[end + 4 + length :]
        self._rest = rest

    def _take(self, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1].decode()
        self._arrivals.requests[path.partition("?")[0]] += 1
        if path.startswith("/fast"):
            self._arrivals.came(int(body[:10]))
            self._transport.write(_DONE)
        elif path.startswith("/also-fast"):
            self._transport.write(_DONE)
        elif path.startswith("/slow-too"):
            asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._transport.write, _DONE)
        elif path.startswith("/slow"):
            self._arrivals.came(int(body[:10]))
            asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._transport.write, _DONE)
        elif path.startswith("/failing"):
            self._transport.write(_FAILED)
        elif path.startswith("/told"):
            first, count = (int(each) for each in path.partition("?")[2].split("-"))
            told = json.dumps(self._arrivals.told(first, count)).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(told)
            self._transport.write(head + told)
        elif path.startswith("/anew"):
            self._arrivals.begin_anew()
            self._transport.write(_DONE)


async def serve() -> None:
    arrivals = Arrivals()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Requests(arrivals), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends together with the process that started it.
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    with first() if "first" in sys.argv else nullcontext():
        uvloop.run(serve())
