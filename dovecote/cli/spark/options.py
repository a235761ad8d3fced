"""The options that several commands of `dovecote spark` have."""

from typing import Annotated, TypeAlias

import typer

MasterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs; by default `spark.master`, otherwise `local[*]`.",
    ),
]
AdoptOption: TypeAlias = Annotated[
    bool, typer.Option("--adopt", help="Take over the markers of another query, once.")
]
