"""Recognise before it is called whether a function can do its duty."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from outbox.errors import BadSettings

# An ordinary function around an async one that has none of these does not run it.
_RUNS = {"run", "run_until_complete", "run_coroutine_threadsafe", "async_to_sync", "AsyncToSync"}


def is_awaited(function: object) -> bool:
    """Return whether `function` is async: it, what a `partial` calls, or its `__call__`."""
    return inspect.iscoroutinefunction(_called(function))


def require_takes(function: Callable[..., Any], given: Sequence[str], *, duty: str) -> None:
    """
    Check that `function` can be called with the arguments `given`, in this order.

    Raises:
        BadSettings: it cannot, or it returns no result: a class, a generator, or an ordinary
            function around an async one.
    """
    name = f"{duty} {_name(function)}"
    if inspect.isclass(function):
        msg = f"{name} is a class; it must be a function, or an object that can be called"
        raise BadSettings(msg)
    require_returns(function, duty=duty)
    try:
        # Ignore the signature of a wrapped function: a decorator may pass more than it takes.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        takes = signature.replace(return_annotation=inspect.Signature.empty)
        msg = f"{name} takes {takes}, and is given {' and '.join(given)}: {error}"
        raise BadSettings(msg) from error


def require_returns(function: Callable[..., Any], *, duty: str) -> None:
    """
    Check that a call of `function` runs its code to an answer.

    Raises:
        BadSettings: a call only makes a generator or a coroutine.
    """
    called, name = _called(function), f"{duty} {_name(function)}"
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        msg = (
            f"{name} is a generator (it has `yield`), so a call would not run it; it must return "
            "its answer"
        )
        raise BadSettings(msg)
    inner: Any = inspect.unwrap(called) if callable(called) else called
    if inspect.iscoroutinefunction(inner) and not is_awaited(called) and not _runs(called):
        msg = (
            f"{name} is an ordinary function around an async one, so nothing would await it; make "
            "the wrapper in its decorator `async def`, and await the function there; if it runs "
            "the function itself, delete the wrapper's `__wrapped__`"
        )
        raise BadSettings(msg)


def _called(function: object) -> object:
    """Return the function whose code a call runs."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function) or not callable(function):
        return function
    # `inspect` knows more about an object that says it is async, such as a mock.
    marked = inspect.iscoroutinefunction(function)
    return function if marked else type(function).__call__


def _runs(function: object) -> bool:
    """Return whether a wrapper's code seems to run a coroutine itself."""
    code = getattr(inspect.unwrap(function, stop=_has_code), "__code__", None)  # type: ignore[arg-type]  # callable
    return code is None or not _RUNS.isdisjoint(code.co_names)


def _has_code(function: object) -> bool:
    return hasattr(function, "__code__")


def _name(function: Callable[..., Any]) -> str:
    named: Any = function
    while isinstance(named, partial):
        named = named.func
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}:{named.__qualname__}"
