"""Postgres and Kafka on this machine, for development and tests."""

from typing import TYPE_CHECKING

from outbox.lazily import lazy

if TYPE_CHECKING:
    from dovecote.devstack.kafka.cluster import Cluster
    from dovecote.devstack.postgres.pair import Pair
    from dovecote.devstack.stack import Stack

__all__ = [
    "Cluster",
    "Pair",
    "Stack",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Cluster": "dovecote.devstack.kafka.cluster",
            "Pair": "dovecote.devstack.postgres.pair",
            "Stack": "dovecote.devstack.stack",
        },
        extra="stack",
    )
