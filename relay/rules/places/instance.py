"""
Which running server a session is at, by what the server says of itself.

One address may lead to two servers: a balancer, or a name in DNS, goes over to the standby that
was promoted, and the sessions that are open stay where they are. A session never moves, so that
each is asked once. When a server was started tells it from its copies.
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
    """When, in microseconds since 1970, by its own clock."""
