"""
Load filters and handlers from the text by which settings name them.

A handler is `module:function`; a filter is that, or a Starlark expression over `value`, `key` and
`headers`, such as `value.amount > 0 and headers["region"] == "eu"`.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from dedup.rules.policies.departures import leave
from dedup.rules.policies.results import Result, result_of
from dedup.rules.policies.signatures import is_awaited, require_returns, require_takes
from dedup.rules.policies.starlark import compile_expression
from outbox.errors import BadSettings
from outbox.event import Event

Filter: TypeAlias = Callable[[Event], bool]
Handler: TypeAlias = Callable[[Event], Result]

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_REFERENCE = re.compile(f"{_NAME}:{_NAME}")


def compile_filter(text: str) -> Filter:
    """
    Return the filter that `text` stands for; an event passes if its result is true.

    Raises:
        BadSettings: there is no such function, or the expression cannot be compiled.
    """
    if not _REFERENCE.fullmatch(text.strip()):
        return compile_expression(text)
    function = _function(text.strip(), duty="filter")
    require_returns(function, duty="filter")

    def passes(event: Event) -> bool:
        try:
            return bool(function(event))
        except BaseException as error:
            leave(error)
            raise

    return passes


def load_handler(text: str) -> Handler:
    """
    Return the handler `module:function`, which returns a result whatever the function returns.

    Raises:
        BadSettings: there is no such function.
    """
    function = _function(text.strip(), duty="handler")
    require_takes(function, ["an event"], duty="handler")

    def handle(event: Event) -> Result:
        try:
            return result_of(function(event))
        except BaseException as error:
            leave(error)
            raise

    return handle


def load_function(reference: str, *, duty: str) -> Callable[..., Any]:
    """
    Return the function `module:function`, which may be async.

    Raises:
        BadSettings: there is no such function.
    """
    return _function(reference.strip(), duty=duty, awaited=True)


def load_object(reference: str, *, duty: str) -> Any:  # noqa: ANN401  # whatever the module holds
    """
    Return the object that `module:object` names; `duty` is its purpose.

    Raises:
        BadSettings: there is no such object.
    """
    if not _REFERENCE.fullmatch(reference):
        msg = f'{duty} {reference!r} is not of the form "module:function"'
        raise BadSettings(msg)
    module, _, path = reference.partition(":")
    found: Any = _module(module, where=f"{duty} {reference!r}")
    for name in path.split("."):
        if not hasattr(found, name):
            msg = (
                f"{duty} {reference!r}: looked for {path} in {_file(module)}, which has no {name}"
            )
            raise BadSettings(msg)
        found = getattr(found, name)
    return found


def _function(reference: str, *, duty: str, awaited: bool = False) -> Callable[[Event], Any]:
    found = load_object(reference, duty=duty)
    if not callable(found) or (is_awaited(found) and not awaited):
        kind = "an async function" if callable(found) else f"a {type(found).__name__}"
        msg = f"{duty} {reference!r} is {kind}; it must be an ordinary function of one event"
        raise BadSettings(msg)
    return found  # type: ignore[no-any-return]  # whatever the module holds, but it is callable


def _module(name: str, *, where: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            msg = (
                f"{where}: looked for the module {error.name} on Python's path and found none; "
                f"{_current_folder()}"
            )
            raise BadSettings(msg) from error
        msg = f"{where}: the module {name} imports {error.name}, which is not installed"
        raise BadSettings(msg) from error
    except Exception as error:
        msg = f"{where}: importing {name} raised {type(error).__name__}: {error}"
        raise BadSettings(msg) from error


def _current_folder() -> str:
    """Return whether Python's path has the current folder, which a command puts there."""
    here = Path.cwd()
    is_searched = any(Path(each).resolve() == here for each in sys.path)
    return f"the current folder, {here}, {'was searched too' if is_searched else 'is not on it'}"


def _file(module: str) -> str:
    return getattr(import_module(module), "__file__", None) or module
