"""The transactions of a trial, whose handler is `(event, tx)`."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from operator import attrgetter
from typing import Any

from dedup.inbox.inbox import Inbox
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from dedup.serving.ways_out import guarded
from outbox import envelope
from outbox.errors import BadSettings

NOTHING: Any = object()
"""Stands for no transaction: None may be one."""


def itself(record: Record) -> Record:
    """Return a record, if its headers are known."""
    envelope.require_readable(record)
    return record


def has_inbox_of(tx: object, begin: object, inbox: object) -> bool:
    """
    Return whether the handler takes a transaction.

    Raises:
        BadSettings: the arguments contradict each other.
    """
    if tx is not NOTHING and begin is not None:
        msg = "give a trial tx or begin, not both: begin makes the transaction"
        raise BadSettings(msg)
    if inbox is not None and begin is None:
        msg = "an inbox in a database needs begin=…, which opens the transactions there"
        raise BadSettings(msg)
    return tx is not NOTHING or begin is not None


def once_in(
    handler: Callable[..., Any],
    given_of: Callable[[Record], Any],
    begin: Callable[[], Any],
    inbox: Inbox,
) -> Callable[[Record], Any]:
    """Return the handler of records that runs `handler` in transactions, as the consumer does."""
    inner = guarded(handler)

    def handle(record: Record, tx: object) -> Any:  # noqa: ANN401  # its answer
        return inner(given_of(record), tx)

    once = inbox.once_async if is_awaited(handler) else inbox.once
    made: Callable[[Record], Any] = once(handle, begin, identity=attrgetter("identity"))
    return made


def blocks_of(tx: Any, *, awaits: bool) -> Callable[[], Any]:  # noqa: ANN401  # what the handler takes
    """Return what begins a transaction, or a savepoint, on the object that handlers are given."""
    block = getattr(tx, "transaction", None) or getattr(tx, "begin_nested", None) or nullcontext

    @contextmanager
    def begin() -> Iterator[Any]:
        opened = block()
        if not hasattr(opened, "__enter__"):
            msg = f"{type(tx).__name__} has to be awaited, and the handler is not async"
            raise BadSettings(msg)
        with opened:
            yield tx

    @asynccontextmanager
    async def begin_async() -> AsyncIterator[Any]:
        opened = block()
        if hasattr(opened, "__aenter__"):
            async with opened:
                yield tx
        else:
            with opened:
                yield tx

    return begin_async if awaits else begin
