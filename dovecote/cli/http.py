"""Serve the numbers of several shards, or of one process, on one page."""

from contextlib import AbstractContextManager

from dovecote.process import http
from dovecote.process.http import Ready
from relay.metrics import HasRegistry, Together


def serve(
    host: str, port: int, health: Ready, *metrics: HasRegistry
) -> AbstractContextManager[int]:
    """
    Serve in the background and give the port: the given one, or any free one for 0.

    Raises:
        BadSettings: nobody can listen there.
    """
    return http.serve(host, port, health, Together(metrics))
