"""The options that the commands of `dovecote contracts` share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dovecote.contracts.settings import ContractsTable
from outbox.errors import BadSettings

ModulesOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        "-m",
        metavar="MODULE",
        help="A module with event classes, such as shop.events; repeatable.",
        show_default=False,
    ),
]
FileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The committed file; by default `file` of the settings, otherwise contracts.json.",
        show_default=False,
    ),
]
RegistryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="Use the schema registry at this URL, too, or as the other side.",
        show_default=False,
    ),
]


def modules_of(given: list[str] | None, table: ContractsTable) -> list[str]:
    """Return the modules that are asked for: those of the options, otherwise of the file."""
    return given or list(table.modules)


def file_of(given: Path | None, table: ContractsTable) -> Path:
    """Return the committed file."""
    return given or table.file


def registry_of(url: str, table: ContractsTable) -> dict[str, str]:
    """
    Return the settings of the registry's client.

    Raises:
        BadSettings: the URL is none, or would show a password.
    """
    if not url.startswith(("http://", "https://")) or "@" in url:
        msg = (
            "--registry takes http://host:port without credentials; `basic.auth.user.info` and "
            "others belong to [contracts.registry] of the settings file"
        )
        raise BadSettings(msg)
    return {**table.registry, "url": url}
