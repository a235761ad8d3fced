"""`dovecote schema`: the JSON Schema of a file, for editors and for checks elsewhere."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from dovecote.cli.options import one_of


class What(StrEnum):
    """The files that have one."""

    AGGREGATION = "aggregation"


def schema(
    what: Annotated[
        What,
        typer.Argument(metavar=one_of(What), help="The kind of the file.", show_default=False),
    ],
) -> None:
    """
    Print the JSON Schema of a file.

    Example: dovecote schema aggregation > aggregation.schema.json
    """
    from spark_jobs.operators.aggregation.config import json_schema

    schemas = {What.AGGREGATION: json_schema}
    typer.echo(json.dumps(schemas[what](), indent=2))
