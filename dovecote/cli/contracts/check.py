"""`dovecote contracts check`: say which change of event classes breaks whom."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.contracts.options import (
    FileOption,
    ModulesOption,
    RegistryOption,
    file_of,
    modules_of,
    registry_of,
)
from dovecote.cli.options import ConfigOption, JsonOption, one_of
from dovecote.contracts.collecting import contracts_of
from dovecote.contracts.files import load, load_revision
from dovecote.contracts.registry import registered
from dovecote.contracts.rules.change import BACKWARD, FORWARD, Compatibility, Verdict
from dovecote.contracts.rules.contract import written
from dovecote.contracts.rules.sets import Found, compare_all
from dovecote.contracts.settings import ContractsTable, read_table
from outbox.errors import BadSettings

_CompatibilityOption = Annotated[
    Compatibility | None,
    typer.Option(
        "--compatibility",
        metavar=one_of(Compatibility),
        help="Readers that no change may break; default: as the settings say, otherwise backward.",
        show_default=False,
    ),
]
_AgainstOption = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="REVISION",
        help="Compare with the file as this revision of git has it.",
        show_default=False,
    ),
]
_BaseOption = Annotated[
    Path | None,
    typer.Option(
        "--base", metavar="FILE", help="Compare with this other file.", show_default=False
    ),
]
_CurrentOption = Annotated[
    bool,
    typer.Option("--current", help="Fail also if the committed file lacks a change of the code."),
]


def check(
    *,
    module: ModulesOption = None,
    file: FileOption = None,
    against: _AgainstOption = None,
    base: _BaseOption = None,
    registry: RegistryOption = None,
    compatibility: _CompatibilityOption = None,
    current: _CurrentOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Say which change of event classes breaks whom.

    It compares the code of --module with the committed file. Without a module it compares the file
    itself with --against, --base or --registry. It ends with status 1 if a change breaks one
    whom none may break, and with 2 if it cannot compare.

    Example: dovecote contracts check --module shop.events --against main --compatibility full
    """
    table = read_table(config)
    path = file_of(file, table)
    modules = modules_of(module, table)
    sides = [each for each in (against, base, registry) if each is not None]
    if len(sides) > 1:
        msg = "give one of --against, --base and --registry"
        raise BadSettings(msg)
    if not modules and not sides:
        msg = (
            "nothing to compare: give --module for the code, or --against, --base or --registry "
            "for another side of the file"
        )
        raise BadSettings(msg)
    if current and not modules:
        msg = "--current compares the file with code: give --module"
        raise BadSettings(msg)
    new = contracts_of(modules) if modules else load(path)
    text = written(new)
    if against is not None:
        old = load_revision(path, against)
    elif registry is not None:
        old = registered(registry_of(registry, table), new)
    else:
        old = load(base or path)
    found = compare_all(old, new)
    default = compatibility or table.compatibility
    broken = [each for each in found if each.change.breaks(table.topics.get(each.topic, default))]
    for line in _json(found, table, default) if as_json else _lines(found, table, default):
        typer.echo(line)
    is_stale = bool(modules) and written(load(path)) != text if current else False
    if is_stale:
        typer.echo(f"{path} is not what the code says: run `dovecote contracts export`", err=True)
    if not as_json:
        typer.echo(_sum(len(found), len(broken)))
    if broken or is_stale:
        raise typer.Exit(1)


def _lines(found: list[Found], table: ContractsTable, default: Compatibility) -> Iterator[str]:
    for each in found:
        change = each.change
        wanted = table.topics.get(each.topic, default)
        is_fine = change.backward is Verdict.FINE and change.forward is Verdict.FINE
        mark = "BREAKS" if change.breaks(wanted) else "fine  " if is_fine else "passes"
        yield f"{mark}  {printed.text(each.name)}  {change.path}: {printed.text(change.what)}"
        if not is_fine:
            yield f"        {BACKWARD}: {change.backward}; {FORWARD}: {change.forward}"
        if change.why:
            yield f"        {printed.text(change.why)}"


def _json(found: list[Found], table: ContractsTable, default: Compatibility) -> Iterator[str]:
    for each in found:
        change, wanted = each.change, table.topics.get(each.topic, default)
        yield printed.as_json(
            {
                "contract": each.name,
                "topic": each.topic,
                "path": change.path,
                "change": change.what,
                "backward": change.backward,
                "forward": change.forward,
                "why": change.why,
                "compatibility": wanted,
                "breaks": change.breaks(wanted),
            }
        )


def _sum(changes: int, broken: int) -> str:
    if not changes:
        return "no change"
    noun = "change" if changes == 1 else "changes"
    if not broken:
        return f"{changes} {noun}, none of which breaks a reader that counts"
    return f"{broken} of {changes} {noun} {'breaks' if broken == 1 else 'break'} readers"
