"""Serve /metrics, /healthz and /readyz of any process, and nothing else."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from prometheus_client.registry import Collector

from dovecote.process.health import Ready, StateNumbers
from dovecote.process.settings.models import HttpSettings
from dovecote.process.tokens import ReadyWithTokens, TokenNumbers

# Scrapes and probes come one after the other; a process may have 256 descriptors in all.
_CONNECTIONS, _REQUESTS = 48, 8


@contextmanager
def served(
    settings: HttpSettings,
    health: Ready,
    numbers: Collector,
    log: logging.Logger,
    *,
    part: str = "",
    labels: Mapping[str, str] = MappingProxyType({}),
    to_parent: bool = False,
) -> Iterator[int | None]:
    """
    Serve in the background where the settings say, and yield the port; without one, nowhere.

    `part` and `labels` name the process in the metric of its state; without `part` there is none.
    `to_parent`: users ask another process, which says where.

    Raises:
        BadSettings: the address cannot be listened on.
    """
    if settings.port is None:
        yield None
        return
    with serve(
        settings.host,
        settings.port,
        health,
        numbers,
        hosts=settings.hosts,
        part=part,
        labels=labels,
    ) as port:
        level = logging.DEBUG if to_parent else logging.INFO
        log.log(level, "serving /metrics, /healthz, /readyz on %s:%d", settings.host, port)
        yield port


@contextmanager
def serve(
    host: str,
    port: int,
    health: Ready,
    numbers: Collector,
    *,
    hosts: Sequence[str] = (),
    part: str = "",
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    """
    Serve in the background and yield the port: the given one, or any free one for 0.

    `part` and `labels` name the process in the metric of its state; without `part` there is none.

    Raises:
        BadSettings: the address cannot be listened on.
    """
    # A process that serves nothing does not load a server.
    from dovecote.process.http import server
    from dovecote.process.http.connections import Bounds

    async def nothing_else(
        _scope: server.Scope, _receive: server.Receive, send: server.Send
    ) -> None:
        await server.refuse(send, 404, "try /metrics, /healthz or /readyz")

    bounds = Bounds(connections=_CONNECTIONS, requests=_REQUESTS)
    known = ReadyWithTokens(health)
    if part:
        numbers = StateNumbers(part, labels, known, numbers)
    with server.serve(
        nothing_else,
        host,
        port,
        hosts=hosts,
        bounds=bounds,
        health=known,
        numbers=TokenNumbers(numbers),
    ) as bound:
        yield bound
