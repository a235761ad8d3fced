"""Run all of a parent: its processes, and its answers for them."""

import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dovecote.process.http.connections import Bounds
from dovecote.process.signals import on_end
from dovecote.processes.front import answering
from dovecote.processes.parent import Parent, again
from outbox.errors import BadSettings

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
    config: Path | None,
    longest: float,
    bounds: Bounds = _PROBES,
    max_body: int = 0,
) -> None:
    """
    Run the command of this process `count` times, until this one is asked to end.

    `longest` is how long a process takes to end by itself, in seconds. With `max_body`, requests
    that are not for the parent are handed to one of the processes.

    Raises:
        BadSettings: the address cannot be listened on, or the file can be read once only.
        ProcessEnded: a process ended before it had begun its work, or not well at the end.
    """
    if config is not None and not config.is_file():
        msg = (
            f"{config} can be read only once, and each of {count} processes reads it: save the "
            "settings in a file, or set processes = 1"
        )
        raise BadSettings(msg)
    _open_standard_streams()
    # A program that starts this one may ignore it, and then no status of a process is known.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = Parent(again(), count, longest=longest + _BEYOND, alone=True)
    on_end(lambda *_: parent.stop())
    with answering(parent, http.host, http.port, http.hosts, bounds=bounds, max_body=max_body):
        log.info("running %d processes", count)
        parent.run()
    log.info("stopped")


def _open_standard_streams() -> None:
    """Open those that are closed: a socket to a process would get the number of one."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004  # 0, 1 and 2
        os.set_inheritable(opened, True)  # noqa: FBT003  # the function has no name for it
    os.close(opened)
