"""`dovecote push audit`: see who did what over the API, and what was refused."""

from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from dovecote.cli import printed
from dovecote.cli.options import HERE, ApiOption, JsonOption, LimitOption, TokenOption
from dovecote.push.client import Api


def audit(
    subscription: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBSCRIPTION", help="Only what concerns this one.", show_default=False
        ),
    ] = None,
    *,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    List who did what over the API, and what was refused.

    The newest comes first. A token with the right to operate sees what it did itself, and what
    others did to subscriptions that it may see.

    Example: dovecote push audit slack
    """
    asked = {"limit": str(limit)} | (
        {} if subscription is None else {"subscription": subscription}
    )
    for entry in Api.of(api, token_file)("GET", f"/audit?{urlencode(asked)}"):
        typer.echo(printed.as_json(entry) if as_json else _line(entry))


def _line(entry: dict[str, Any]) -> str:
    by = "nobody known" if entry["actor"] is None else printed.text(entry["actor"])
    times = f"  {entry['times']} times" if entry["times"] > 1 else ""
    whence = f"  from {printed.text(entry['address'])}" if entry["address"] else ""
    said = entry["error"] or entry["detail"]
    return (
        f"{entry['at']}  {by}{whence}  {entry['method']} {printed.text(entry['path'])}"
        f"  {entry['status']}{times}" + (f"  ({printed.text(said)})" if said else "")
    )
