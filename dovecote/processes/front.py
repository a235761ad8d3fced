"""Answer over HTTP for all processes, and hand to one of them what is not for the parent."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.process.http import server
from dovecote.process.http.connections import Bounds
from dovecote.processes import asking
from dovecote.processes.child import CALLER
from dovecote.processes.parent import Parent
from dovecote.processes.rules.numbers import LABEL, together

_SECONDS, _LOOK_EVERY = 5.0, 1.0
_MOST_SCRAPES = 4
_OK, _NOT_FOR_THEM = 200, frozenset({401, 403})

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
        shown = f"[{host}]" if ":" in host else host
        _log.info("serving for all processes on http://%s:%d", shown, bound)
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
        self._scrapes = asyncio.Semaphore(_MOST_SCRAPES)

    async def __call__(
        self, scope: server.Scope, receive: server.Receive, send: server.Send
    ) -> None:
        if scope["path"] == "/metrics":
            if scope["method"] not in {"GET", "HEAD"}:
                await server.refuse(send, 405, "only GET and HEAD", {"allow": "GET, HEAD"})
                return
            async with self._scrapes:
                await self._metrics(scope, send)
        elif self._max_body:
            await self._hand_on(scope, receive, send)
        else:
            await server.refuse(send, 404, "try /metrics, /healthz or /readyz")

    async def _metrics(self, scope: server.Scope, send: server.Send) -> None:
        request = asking.Request("GET", "/metrics", self._request(scope).headers)
        ports = [each for each in self._parent.ports() if not self._parent.is_silent(each[0])]
        found = await asyncio.gather(*(_shown(port, request) for _, port in ports))
        answers = [
            (number, answer)
            for (number, _), answer in zip(ports, found, strict=True)
            if answer is not None
        ]
        refused = next((answer for _, answer in answers if answer.status in _NOT_FOR_THEM), None)
        if refused is not None:  # they all have the same tokens
            await _passed(send, refused, scope)
            return
        # One that is too busy to show its metrics takes those of the others from nobody.
        texts = [(number, each.body.decode()) for number, each in answers if each.status == _OK]
        text = await asyncio.to_thread(self._text, texts)
        await server.answer(send, 200, text, kind=CONTENT_TYPE_LATEST)

    def _text(self, texts: list[tuple[int, str]]) -> bytes:
        return generate_latest(_All(self._own, texts))

    def _request(self, scope: server.Scope) -> asking.Request:
        address = (scope.get("client") or ("",))[0]
        return asking.request_of(scope, (CALLER, f"{self._parent.secret} {address}"))

    async def _hand_on(
        self, scope: server.Scope, receive: server.Receive, send: server.Send
    ) -> None:
        request = self._request(scope)
        for number, port in self._parent.ports():
            try:
                answer = await self._answered(number, port, request, receive)
            except asking.Unreached:
                continue
            except asking.Unanswered:
                if scope["method"] in {"GET", "HEAD"} and not request.has_body:
                    continue
                why = "its process ended first: see whether it was done, before you ask again"
                await server.refuse(send, 503, why, {"connection": "close"})
            except asking.TooLong as error:
                await server.refuse(send, 413, str(error), {"connection": "close"})
            except asking.Gone:
                pass  # nobody waits for an answer
            else:
                await _passed(send, answer, scope)
            return
        why = "no process answers: look at /readyz, and ask again"
        await server.refuse(send, 503, why, {"retry-after": "1"})

    async def _answered(
        self, number: int, port: int, request: asking.Request, receive: server.Receive
    ) -> asking.Answer:
        """Return the answer of a process, for which there is time as long as it is well."""
        answer = asyncio.create_task(asking.ask(port, request, receive, self._max_body))
        try:
            while not (await asyncio.wait({answer}, timeout=_LOOK_EVERY))[0]:
                if self._parent.is_silent(number):
                    msg = f"process {number} does not answer any more"
                    raise asking.Unanswered(msg)
            return answer.result()
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)


class _All(Collector):
    def __init__(self, own: Collector, texts: list[tuple[int, str]]) -> None:
        self._own, self._texts = own, texts

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self._own.collect()
        yield from together(self._texts)


async def _shown(port: int, request: asking.Request) -> asking.Answer | None:
    """Ask a process for its metrics; None: it does not answer."""
    try:
        return await asyncio.wait_for(asking.ask(port, request), _SECONDS)
    except (asking.Unreached, asking.Unanswered, TimeoutError):
        return None


async def _passed(send: server.Send, answer: asking.Answer, scope: server.Scope) -> None:
    kept = [
        (name, value)
        for name, value in answer.headers
        if name.decode("latin-1") not in asking.OF_A_CONNECTION
    ]
    length = str(len(answer.body)).encode()
    if scope["method"] == "HEAD":  # of the answer to a GET
        length = dict(answer.headers).get(b"content-length", length)
    kept.append((b"content-length", length))
    await send({"type": "http.response.start", "status": answer.status, "headers": kept})
    await send({"type": "http.response.body", "body": answer.body})
