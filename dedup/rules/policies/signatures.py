"""Compare a function's parameters with the arguments that it will get."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from outbox.errors import BadSettings


def require_takes(function: Callable[..., Any], given: Sequence[str], *, duty: str) -> None:
    """
    Check that `function` can be called with the arguments `given`, in this order.

    Raises:
        BadSettings: it cannot, or it is a class, which returns no result.
    """
    name = f"{duty} {_name(function)}"
    if inspect.isclass(function):
        msg = f"{name} is a class; it must be a function, or an object that can be called"
        raise BadSettings(msg)
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


def _name(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"
