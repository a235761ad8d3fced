"""Answer over HTTP for all processes, and hand to one of them what is not for the parent."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.process.http import server
from dovecote.process.http.connections import Bounds
from dovecote.processes.parent import Parent
from dovecote.processes.rules.numbers import LABEL, together

_SECONDS, _ANSWER_SECONDS = 5.0, 60.0
_OWN = frozenset(
    {
        *("connection", "content-length", "date", "host", "keep-alive", "origin", "server", "te"),
        *("trailer", "transfer-encoding", "upgrade", "proxy-connection", "expect"),
    }
)
"""Headers of one connection, which are not handed on; `server` has judged host and origin."""

_log = logging.getLogger("dovecote.processes")


@contextmanager
def answering(
    parent: Parent,
    host: str,
    port: int | None,
    hosts: Sequence[str],
    *,
    bounds: Bounds,
    max_body: int,
) -> Iterator[None]:
    """
    Serve in the background: nowhere without a port.

    /readyz tells of all processes. /metrics has the metrics of each, with the label `process`; a
    caller sees them who would see those of one. With `max_body`, one of the processes gets every
    other request, with a body of at most so many bytes.

    Raises:
        BadSettings: the address cannot be listened on.
    """
    if port is None:
        yield
        return
    front = _Front(parent, max_body)
    with server.serve(
        front, host, port, hosts=hosts, bounds=bounds, health=parent, numbers=None
    ) as bound:
        _log.info("serving for all processes on %s:%d", host, bound)
        yield


class ProcessNumbers(Collector):
    """The metrics of the parent itself."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        answering = set(self._parent.answering())
        runs = GaugeMetricFamily(
            "dovecote_process_up",
            "1 for a process that runs and has answered its parent within 10 seconds.",
            labels=[LABEL],
        )
        restarts = CounterMetricFamily(
            "dovecote_process_restarts",
            "How often a process ended by itself and was started again.",
            labels=[LABEL],
        )
        for each in self._parent.members():
            runs.add_metric([str(each.number)], float(each.number in answering))
            restarts.add_metric([str(each.number)], each.restarts)
        yield from (runs, restarts)


class _Front:
    def __init__(self, parent: Parent, max_body: int) -> None:
        self._parent, self._max_body = parent, max_body
        self._own = ProcessNumbers(parent)
        # Apart from the loop's threads, which long requests may fill.
        self._askers = ThreadPoolExecutor(16, "scrape")

    async def __call__(
        self, scope: server.Scope, receive: server.Receive, send: server.Send
    ) -> None:
        if scope["path"] == "/metrics":
            await self._metrics(scope, send)
        elif self._max_body:
            await self._hand_on(scope, receive, send)
        else:
            await server.refuse(send, 404, "try /metrics, /healthz or /readyz")

    async def _metrics(self, scope: server.Scope, send: server.Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            await server.refuse(send, 405, "only GET and HEAD", {"allow": "GET, HEAD"})
            return
        request = _Request("GET", "/metrics", _headers(scope), seconds=_SECONDS)
        loop = asyncio.get_running_loop()
        ports = self._parent.ports()
        asked = [loop.run_in_executor(self._askers, _asked, port, request) for _, port in ports]
        answers = [
            (number, answer)
            for (number, _), answer in zip(ports, await asyncio.gather(*asked), strict=True)
            if answer is not None
        ]
        refused = next((answer for _, answer in answers if answer.status != 200), None)  # noqa: PLR2004
        if refused is not None:  # they all have the same tokens
            await _passed(send, refused)
            return
        texts = [(number, answer.body.decode()) for number, answer in answers]
        text = await loop.run_in_executor(self._askers, self._text, texts)
        await server.answer(send, 200, text, kind=CONTENT_TYPE_LATEST)

    def _text(self, texts: list[tuple[int, str]]) -> bytes:
        return generate_latest(_All(self._own, texts))

    async def _hand_on(
        self, scope: server.Scope, receive: server.Receive, send: server.Send
    ) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > self._max_body:
                why = f"the body is longer than {self._max_body} bytes"
                await server.refuse(send, 413, why, {"connection": "close"})
                return
            if not message.get("more_body"):
                break
        query = scope["query_string"]
        path = scope["raw_path"].decode("ascii") + (f"?{query.decode('ascii')}" if query else "")
        request = _Request(scope["method"], path, _headers(scope), body)
        for _, port in self._parent.ports():
            answer = await asyncio.to_thread(_asked, port, request)
            if answer is not None:
                await _passed(send, answer)
                return
            if scope["method"] not in {"GET", "HEAD"}:
                break  # it may have been done before the process ended
        why = "no process answers: look at /readyz, and ask again"
        await server.refuse(send, 503, why, {"retry-after": "1"})


class _All(Collector):
    def __init__(self, own: Collector, texts: list[tuple[int, str]]) -> None:
        self._own, self._texts = own, texts

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self._own.collect()
        yield from together(self._texts)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes = b""
    seconds: float = _ANSWER_SECONDS


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


def _asked(port: int, request: _Request) -> _Answer | None:
    """Ask a process of ours; None: it does not answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=request.seconds)
    try:
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        # One by one, because the process refuses some of them if they come twice.
        for name, value in request.headers:
            connection.putheader(name, value)
        connection.putheader("content-length", str(len(request.body)))
        connection.endheaders(request.body)
        answer = connection.getresponse()
        return _Answer(answer.status, answer.getheaders(), answer.read())
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def _headers(scope: server.Scope) -> list[tuple[str, str]]:
    found = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    return [(name, value) for name, value in found if name not in _OWN]


async def _passed(send: server.Send, answer: _Answer) -> None:
    kept = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in answer.headers
        if name.lower() not in _OWN
    ]
    kept.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": kept})
    await send({"type": "http.response.body", "body": answer.body})
