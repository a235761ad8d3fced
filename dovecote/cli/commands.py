"""How a command is made: its help, its place in a group, and the advice when it is mistyped."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar, TypeAlias

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command, get_group

from dovecote.cli.extras import EXTRAS
from dovecote.cli.flags import for_typer
from dovecote.cli.printed import text
from outbox.errors import BadSettings
from outbox.lazily import advice, of_others

# A list of suggestions is read at a glance, or not at all.
_MOST_SUGGESTIONS = 3
# Among so many commands some name is always a little like a mistyped one.
_CUTOFF_ELSEWHERE = 0.8
_SHORTEST_PREFIX = 3
_SYNONYMS = ({"run", "serve", "start", "up"}, {"down", "stop"}, {"delete", "drop", "remove"})

_Wanted: TypeAlias = Callable[[str, Collection[str]], Collection[str]]
"""Returns those of some names that may be meant by a name."""

Path: TypeAlias = tuple[str, ...]
"""The words that name a command, without the first: `relay`, `parked`, `list`."""


class Command(TyperCommand):
    """A command whose help names arguments and ranges in words of ours."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # typer's own click
        """Write arguments and options, each on a row."""
        arguments, options = [], []
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            name, words = record
            if isinstance(parameter, TyperArgument):
                arguments.append((parameter.display_name_raw, _spelled_out(words)))
            else:
                options.append((name, _spelled_out(words)))
        for heading, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  # as above
        """Return what the line of usage shows after the name."""
        arguments = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return ["[OPTIONS]", *map(_usage, arguments)]


def _usage(argument: TyperArgument) -> str:
    name = argument.display_name_raw
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")


def _spelled_out(words: str) -> str:
    """Return a help text with `x>=1` as `at least 1`."""
    words = re.sub(r"([\d.]+)<=x<=([\d.]+)", r"\1 to \2", words)
    return words.replace("x>=", "at least ").replace("x<=", "at most ")


class Group(TyperGroup):
    """A group of commands, which suggests others for one that it does not have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # as above
        """Parse the options of the group; suggest the command that an option belongs to."""
        given = args[0].partition("=")[0] if args else ""
        own = {option for each in self.get_params(ctx) for option in each.opts}
        if given.startswith("-") and given not in own and not ctx.resilient_parsing:
            here = _here(ctx)
            if command := self._command_among(args[1:], ctx, given):
                words = " ".join(("dovecote", *here, *command, given))
                ctx.fail(
                    f"No such option: {text(given)}. It belongs after the command: `{words}`."
                )
            takers = [
                (*here, name)
                for name in self.list_commands(ctx)
                if given in _options(self.get_command(ctx, name)) or name == given.lstrip("-")
            ]
            if takers:
                ctx.fail(f"No such option: {text(given)}.{_suggestion(takers)}")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  # as above
        """Return the command that is asked for; suggest others if there is none."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            root = ctx.find_root()
            found = _as_option(name, ctx) or _similar(
                name, _here(ctx), list(_walk(root.command, root))
            )
            ctx.fail(f"No such command {name!r}.{_suggestion(found)}")
        return super().resolve_command(ctx, args)

    def _command_among(self, words: list[str], ctx: Any, option: str) -> Path:  # noqa: ANN401  # as above
        """Return the command in `words`, after the value of `option`, if it takes the option."""
        for start in range(min(2, len(words))):
            command: Any = self
            path: Path = ()
            for word in words[start:]:
                inner = command.get_command(ctx, word)
                if inner is None:
                    break
                command, path = inner, (*path, word)
                if not isinstance(command, Group):
                    break
            if path and option in _options(command):
                return path
        return ()


class Lazy(Group):
    """A group that imports only the command that is asked for: a relay starts in half the time."""

    places: ClassVar[Mapping[str, str]]
    """The module, below this package, and the name in it, by the name of the command."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  # as above
        """Return the names of all commands."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002  # as above
        """Import a command, or return None if there is none of this name."""
        if cmd_name not in self.places:
            return None
        module, _, name = self.places[cmd_name].partition(":")
        package = sys.modules[type(self).__module__].__package__ or ""
        try:
            found = getattr(import_module(f".{module}", package), name)
        except ModuleNotFoundError as error:
            if (missing := of_others(error)) is None:
                raise
            return _Missing(cmd_name, package, missing)
        command = get_group(found) if isinstance(found, typer.Typer) else _command(found)
        command.name = cmd_name
        return command


class _Missing(Command):
    """Stands for a command whose packages are not installed, and says what to install."""

    def __init__(self, name: str, package: str, missing: str) -> None:
        words = [*package.split(".")[2:], name]
        extra = EXTRAS[words[0]] or ""
        self._advice = advice([missing], extra, " ".join(["dovecote", *words]))
        super().__init__(name, help=f"Needs the extra {extra}.", add_help_option=False)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # as above
        """
        Refuse whatever is asked for, help included; a shell that completes words is not refused.

        Raises:
            BadSettings: no shell asks.
        """
        if not ctx.resilient_parsing:
            raise BadSettings(self._advice)
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """A group of commands, with what all groups have in common."""

    def __init__(
        self, name: str, summary: str, *, cls: type[Group] = Group, add_completion: bool = False
    ) -> None:
        """Make a group; `summary` is its help."""
        super().__init__(
            name=name,
            help=summary,
            cls=cls,
            no_args_is_help=True,
            add_completion=add_completion,
            context_settings={"help_option_names": ["-h", "--help"]},
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            suggest_commands=False,
        )

    def command(
        self,
        name: str | None = None,
        *,
        cls: type[TyperCommand] | None = None,
        **more: Any,  # noqa: ANN401  # as typer has it
    ) -> Callable[[Any], Any]:
        """Add a command to the group."""
        return super().command(name, cls=cls or Command, **more)


def _command(function: Callable[..., None]) -> Any:  # noqa: ANN401  # as above
    alone = App("", "")
    alone.command()(for_typer(function))
    return get_command(alone)


def _options(command: Any) -> Collection[str]:  # noqa: ANN401  # as above
    return {option for each in command.params for option in each.opts}


def _here(ctx: Any) -> Path:  # noqa: ANN401  # as above
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, ctx.info_name)
        ctx = ctx.parent
    return tuple(names)


def _walk(group: Any, ctx: Any, here: Path = ()) -> Iterator[Path]:  # noqa: ANN401  # as above
    """Yield all commands of a group, and those of its groups."""
    for name in group.list_commands(ctx):
        yield (*here, name)
        if isinstance(command := group.get_command(ctx, name), TyperGroup):
            yield from _walk(command, ctx, (*here, name))


def _as_option(name: str, ctx: Any) -> list[Path]:  # noqa: ANN401  # as above
    """Return the option of this name, of the group or of `dovecote`: `version`, `help`."""
    for group in (ctx, ctx.find_root()):
        if any(f"--{name}" in each.opts for each in group.command.get_params(group)):
            return [(*_here(group), f"--{name}")]
    return []


def _similar(name: str, here: Path, every: Collection[Path]) -> list[Path]:
    """Return the commands that a user may mean by `name` in the group `here`."""
    below = [path for path in every if path[: len(here)] == here]
    children = [path for path in below if len(path) == len(here) + 1]
    # A name that exists elsewhere is more likely than a mistyped one that exists nearby.
    attempts: tuple[tuple[Collection[Path], _Wanted], ...] = (
        (below, _exact),
        (children, _synonyms),
        (every, _exact),
        (children, _prefixed),
        (below, _prefixed),
        (every, _prefixed),
        (children, _alike),
        (every, _very_alike),
    )
    for paths, wanted in attempts:
        names = wanted(name, {path[-1] for path in paths})
        if found := [path for path in paths if path[-1] in names]:
            return sorted(found, key=len)
    return []


def _exact(name: str, names: Collection[str]) -> Collection[str]:
    return {name}.intersection(names)


def _synonyms(name: str, names: Collection[str]) -> Collection[str]:
    return {each for group in _SYNONYMS if name in group for each in group}.intersection(names)


def _prefixed(name: str, names: Collection[str]) -> Collection[str]:
    return {each for each in names if len(name) >= _SHORTEST_PREFIX and each.startswith(name)}


def _alike(name: str, names: Collection[str]) -> Collection[str]:
    return get_close_matches(name, names)


def _very_alike(name: str, names: Collection[str]) -> Collection[str]:
    return get_close_matches(name, names, cutoff=_CUTOFF_ELSEWHERE)


def _suggestion(found: Collection[Path]) -> str:
    shown = [f"`dovecote {' '.join(path)}`" for path in list(found)[:_MOST_SUGGESTIONS]]
    if not shown:
        return ""
    return f" Did you mean {' or '.join(filter(None, (', '.join(shown[:-1]), shown[-1])))}?"
