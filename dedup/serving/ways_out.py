"""Make every way out of a handler a conclusion: a result, a failed attempt, or the end."""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from dedup.rules.policies.departures import leave
from dedup.rules.policies.signatures import is_awaited
from outbox import forks

_ending: WeakSet[asyncio.Task[Any]] = WeakSet()


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task that serves records: what its handler raises now is no failed attempt."""
    _ending.add(task)
    task.cancel()


def was_cancelled(task: asyncio.Task[Any]) -> bool:
    """Return whether a task was cancelled by us, and not by a handler or a library."""
    return task in _ending


def guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return `handler`, out of which nothing comes but its answer, an `Exception` or `Exits`."""
    if is_awaited(handler):

        async def handle_awaited(*given: Any) -> Any:  # noqa: ANN401  # what the handler returns
            before = forks.count
            try:
                answer = await handler(*given)
            except BaseException as error:
                forks.stay(before, error)
                leave_awaited(error)
                raise
            forks.stay(before)
            return answer

        return handle_awaited

    def handle(*given: Any) -> Any:  # noqa: ANN401  # what the handler returns
        before = forks.count
        try:
            answer = handler(*given)
        except BaseException as error:
            forks.stay(before, error)
            leave(error)
            raise
        forks.stay(before)
        return answer

    return handle


def leave_awaited(error: BaseException) -> None:
    """As `leave`, for what came out of an async handler."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # The loop is no more: Python closes the coroutine, and no code of ours goes on.
    if task is None or task in _ending:
        return
    if isinstance(error, asyncio.CancelledError):
        # A handler that cancels its own task must not cancel what the task does next.
        while task.cancelling():
            task.uncancel()
    leave(error)
