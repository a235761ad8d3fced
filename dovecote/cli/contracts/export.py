"""`dovecote contracts export`: write the schemas of event classes into the committed file."""

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
from dovecote.cli.options import ConfigOption
from dovecote.contracts.collecting import contracts_of
from dovecote.contracts.files import store
from dovecote.contracts.registry import register
from dovecote.contracts.settings import read_table


def export(
    *,
    module: ModulesOption = None,
    file: FileOption = None,
    registry: RegistryOption = None,
    config: ConfigOption = None,
) -> None:
    """
    Write the JSON Schemas of all event classes into one file.

    Commit the file: `dovecote contracts check` compares the code with it. With --registry it
    registers each schema as well, which the registry may refuse by rules of its own.

    Example: dovecote contracts export --module shop.events
    """
    table = read_table(config)
    path = file_of(file, table)
    found = contracts_of(modules_of(module, table))
    is_new = store(path, found)
    noun = "contract" if len(found) == 1 else "contracts"
    typer.echo(f"{path}: {len(found)} {noun}" + ("" if is_new else ", as before"))
    if registry is not None:
        for name, number in register(registry_of(registry, table), found).items():
            typer.echo(f"registered {printed.text(name)} as {number}")
