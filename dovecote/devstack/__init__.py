"""Postgres and Kafka on this machine, for development and tests."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovecote.devstack.kafka.cluster import Cluster
    from dovecote.devstack.postgres.pair import Pair
    from dovecote.devstack.stack import Stack

__all__ = [
    "Cluster",
    "Pair",
    "Stack",
]

_LAZY = {
    "Cluster": "dovecote.devstack.kafka.cluster",
    "Pair": "dovecote.devstack.postgres.pair",
    "Stack": "dovecote.devstack.stack",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever is asked for
    """Import a name when it is asked for: not everybody needs Kafka or Postgres."""
    if (module := _LAZY.get(name)) is not None:
        return getattr(import_module(module), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
