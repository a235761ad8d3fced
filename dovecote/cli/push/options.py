"""The options of the commands that ask the API of `dovecote push serve`."""

from typing import Annotated, TypeAlias

import typer

HERE = "http://127.0.0.1:8080"

ApiOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--api",
        metavar="URL",
        envvar="DOVECOTE_API",
        show_envvar=True,
        help="The URL of the API that `dovecote push serve` has.",
    ),
]
TokenOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="The file with the token, otherwise DOVECOTE_API_TOKEN has it.",
    ),
]
SubscriptionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="Its id.", show_default=False)
]
