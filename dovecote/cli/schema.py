"""`dovecote schema`: the JSON Schema of a file, for editors and for checks elsewhere."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from dovecote.cli.extras import needs


class What(StrEnum):
    """The files that have one."""

    AGGREGATION = "aggregation"


def schema(
    what: Annotated[
        What,
        typer.Argument(metavar="KIND", help=f"One of {', '.join(What)}.", show_default=False),
    ],
) -> None:
    """
    Print the JSON Schema of a file.

    For a subscription, run `dovecote push schema`.

    Example: dovecote schema aggregation > aggregation.schema.json
    """
    with needs("relay", user="dovecote schema"):
        from spark_jobs.operators.aggregation.config import json_schema

    schemas = {What.AGGREGATION: json_schema}
    typer.echo(json.dumps(schemas[what](), indent=2))
