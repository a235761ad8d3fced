"""Run all of a parent: its processes, and its answers for them."""

import logging
from collections.abc import Sequence
from typing import Protocol

from dovecote.process.http.connections import Bounds
from dovecote.process.signals import on_end
from dovecote.processes.front import answering
from dovecote.processes.parent import Parent, again

# A process has a limit of its own, after which it ends by itself.
_BEYOND = 5.0

_PROBES = Bounds(connections=48, requests=8)


class Where(Protocol):
    """Where the parent serves."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int | None: ...
    @property
    def hosts(self) -> Sequence[str]: ...


def run_all(
    count: int,
    http: Where,
    log: logging.Logger,
    *,
    longest: float,
    bounds: Bounds = _PROBES,
    max_body: int = 0,
) -> None:
    """
    Run the command of this process `count` times, until this one is asked to end.

    `longest` is how long a process takes to end by itself, in seconds. With `max_body`, requests
    that are not for the parent are handed to one of the processes.

    Raises:
        BadSettings: the address cannot be listened on.
        ProcessEnded: a process ended before it had begun its work, or did not end.
    """
    parent = Parent(again(), count, longest=longest + _BEYOND)
    on_end(lambda *_: parent.stop())
    with answering(parent, http.host, http.port, http.hosts, bounds=bounds, max_body=max_body):
        log.info("running %d processes", count)
        parent.run()
    log.info("stopped")
