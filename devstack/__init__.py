"""The embedded stack: a real Postgres and a real Kafka, without containers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devstack.stack import Stack as Stack

__all__ = ["Stack"]


def __getattr__(name: str) -> object:
    """Import `Stack` on first use, so that `python -m devstack.jars` runs without it."""
    if name == "Stack":
        from devstack.stack import Stack

        return Stack
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
