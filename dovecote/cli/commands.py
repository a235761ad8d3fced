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

from dovecote.cli.printed import text

# A list of suggestions is read at a glance, or not at all.
_MOST_SUGGESTIONS = 3

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
            found = _similar(name, _here(ctx), list(_walk(root.command, root)))
            ctx.fail(f"No such command {name!r}.{_suggestion(found)}")
        return super().resolve_command(ctx, args)


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
        package = sys.modules[type(self).__module__].__package__
        found = getattr(import_module(f".{module}", package), name)
        command = get_group(found) if isinstance(found, typer.Typer) else _command(found)
        command.name = cmd_name
        return command


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
    alone.command()(function)
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


def _similar(name: str, here: Path, every: Collection[Path]) -> list[Path]:
    """Return the commands that a user may mean by `name` in the group `here`."""
    below = [path for path in every if path[: len(here)] == here]
    children = [path for path in below if len(path) == len(here) + 1]
    # A name that exists elsewhere is more likely than a mistyped one that exists nearby.
    for paths, is_exact in ((below, True), (children, False), (every, True), (every, False)):
        names = {path[-1] for path in paths}
        wanted = {name} & names if is_exact else get_close_matches(name, names)
        if found := [path for path in paths if path[-1] in wanted]:
            return sorted(found, key=len)
    return []


def _suggestion(found: Collection[Path]) -> str:
    shown = [f"`dovecote {' '.join(path)}`" for path in list(found)[:_MOST_SUGGESTIONS]]
    if not shown:
        return ""
    return f" Did you mean {' or '.join(filter(None, (', '.join(shown[:-1]), shown[-1])))}?"
