"""`dovecote contracts asyncapi`: an AsyncAPI document of event classes, or a page of them."""

import json
from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from dovecote.cli.contracts.options import FileOption, ModulesOption, file_of, modules_of
from dovecote.cli.extras import require
from dovecote.cli.options import ConfigOption, one_of
from dovecote.contracts.collecting import contracts_of
from dovecote.contracts.files import load, replaced
from dovecote.contracts.rules.asyncapi import document
from dovecote.contracts.rules.contract import written
from dovecote.contracts.rules.page import page
from dovecote.contracts.settings import read_table


class DocumentForm(StrEnum):
    """The form of the document."""

    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


def asyncapi(
    *,
    module: ModulesOption = None,
    file: FileOption = None,
    form: Annotated[
        DocumentForm,
        typer.Option(
            "--form",
            metavar=one_of(DocumentForm),
            help="Write AsyncAPI as JSON or YAML, or a page for people in Markdown.",
        ),
    ] = DocumentForm.JSON,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write it into this file, and print nothing.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="The title of the document.")
    ] = "Events",
    release: Annotated[
        str, typer.Option("--release", metavar="TEXT", help="The version of the document.")
    ] = "1.0.0",
    config: ConfigOption = None,
) -> None:
    """
    Describe the events in AsyncAPI 3, or on a page for people.

    It describes the code of --module, otherwise the committed file.

    Example: dovecote contracts asyncapi --module shop.events --form yaml --output asyncapi.yaml
    """
    table = read_table(config)
    modules = modules_of(module, table)
    found = contracts_of(modules) if modules else load(file_of(file, table))
    written(found)  # refuses two classes of one name
    if form is DocumentForm.MARKDOWN:
        text = page(found, title=title, version=release)
    else:
        made = document(found, title=title, version=release)
        text = _yaml(made) if form is DocumentForm.YAML else json.dumps(made, indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        replaced(output, text)


def _yaml(made: Mapping[str, Any]) -> str:
    require("yaml", extra="contracts", user="--form yaml")
    dumped = import_module("yaml").safe_dump(made, sort_keys=False, allow_unicode=True)
    return str(dumped)
