"""
The running server that a session is at, as the server identifies itself.

One address may lead to two servers: a balancer or a DNS name switches to a promoted standby, while
open sessions stay where they are. A session never moves, so each is asked once. The start time of
a server tells it from its copies.
"""

from typing import NamedTuple

ASK = (
    "SELECT (SELECT system_identifier::text FROM pg_control_system()),"
    " (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
)


class Instance(NamedTuple):
    """One running server."""

    system_identifier: str
    started: int
    """The server's start, in microseconds since 1970, by its own clock."""
