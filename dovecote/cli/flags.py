"""
The options of commands that work where typer is not installed, too.

Each is said once, in the signature of its command; typer reads it there, and so does argparse.
"""

import inspect
import os
from argparse import (
    ArgumentParser,
    ArgumentTypeError,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, NoReturn, cast, get_args

from dovecote.process.settings.durations import duration, positive
from outbox.errors import BadSettings

Function = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """An option; its name is that of the parameter, and the help is a sentence."""

    help: str
    metavar: str | None = None
    envvar: str | None = None
    hide_default: bool = False
    min: int | None = None
    max: int | None = None

    def refusal(self, number: int) -> str | None:
        """Return why a number is none of those that the option takes."""
        if self.min is not None and number < self.min:
            return f"{number} is less than {self.min}"
        if self.max is not None and number > self.max:
            return f"{number} is more than {self.max}"
        return None


def for_typer(function: Function) -> Function:
    """Return a function whose flags are options of typer; another one is returned as it is."""
    flags = _flags(function)
    if not flags:
        return function
    import typer

    from dovecote.cli.options import duration_of

    def option(parameter: inspect.Parameter) -> inspect.Parameter:
        kind, flag = flags[parameter.name]
        found = typer.Option(
            _name(parameter.name),
            metavar=flag.metavar,
            help=flag.help,
            envvar=flag.envvar,
            show_envvar=flag.envvar is not None,
            show_default=not flag.hide_default,
            min=flag.min,
            max=flag.max,
            parser=duration_of if _inner(kind) is timedelta else None,
        )
        return parameter.replace(annotation=Annotated[kind, found])

    def called(**given: Any) -> None:  # noqa: ANN401  # as typer gives it
        function(**given)

    signature = inspect.signature(function)
    options = [option(each) for each in signature.parameters.values()]
    called.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # functions take it
    called.__annotations__ = {each.name: each.annotation for each in options}
    called.__name__, called.__doc__ = function.__name__, function.__doc__
    return called


def run(function: Function, name: str, words: Sequence[str]) -> None:
    """
    Run a command with the words after its name.

    Raises:
        BadSettings: they are no options of it, or have no such values.
    """
    parser = _Parser(
        prog=name,
        description=inspect.getdoc(function),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for parameter in inspect.signature(function).parameters.values():
        kind, flag = _flags(function)[parameter.name]
        default = os.environ.get(flag.envvar or "", parameter.default)
        parser.add_argument(
            _name(parameter.name),
            dest=parameter.name,
            default=default,
            help=flag.help + (f" (variable {flag.envvar})" if flag.envvar else ""),
            **_how(kind, flag),
        )
    function(**vars(parser.parse_args(words)))


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong."""
        msg = f"{message}; see `{self.prog} --help`"
        raise BadSettings(msg)


def _flags(function: Function) -> Mapping[str, tuple[Any, Flag]]:
    """Return the type and the flag of each parameter that has one."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        match get_args(parameter.annotation):
            case (kind, Flag() as flag):
                found[parameter.name] = kind, flag
    return found


def _name(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


def _how(kind: Any, flag: Flag) -> dict[str, Any]:  # noqa: ANN401  # types
    """Return how argparse takes an option of this type."""
    if kind is bool:
        return {"action": "store_true"}
    inner = _inner(kind)
    many = {"action": "append"} if inner == list[str] else {}
    return {**many, "metavar": flag.metavar, "type": _value(inner, flag)}


def _inner(kind: Any) -> Any:  # noqa: ANN401  # types
    """Return a type without the None that stands for an option which was not given."""
    (inner,) = [each for each in get_args(kind) or (kind,) if each is not NoneType]
    return inner


def _value(kind: Any, flag: Flag) -> Callable[[str], Any]:  # noqa: ANN401  # types
    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            msg = f"{text!r} is not a number"
            raise ArgumentTypeError(msg) from None
        if refusal := flag.refusal(found):
            raise ArgumentTypeError(refusal)
        return found

    def choice(text: str) -> StrEnum:
        try:
            found: StrEnum = kind(text)
        except ValueError:
            msg = f"{text!r} is not one of {', '.join(map(repr, map(str, kind)))}"
            raise ArgumentTypeError(msg) from None
        return found

    def length(text: str) -> timedelta:
        try:
            return positive(cast(timedelta, duration(text)))
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    if kind is int:
        return number
    if kind is timedelta:
        return length
    return choice if isinstance(kind, type) and issubclass(kind, StrEnum) else str
