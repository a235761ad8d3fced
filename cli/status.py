"""`dovecote status`: who is active, and how far behind."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from outbox.settings import load
from relay.settings import PREFIX, RelaySettings
from relay.status import status as look


def status(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="the relay's TOML file")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON line")] = False,
) -> None:
    """
    Show who is active and how far behind; exit status 1 if no relay is active.

    Example: dovecote status --config relay.toml --json
    """
    found = look(load(RelaySettings, config, prefix=PREFIX, environ=os.environ))
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        typer.echo(f"outbox   {found.name}")
        typer.echo(f"active   {found.active or 'no relay'}")
        if found.lag_bytes is not None:
            typer.echo(f"lag      {found.lag_bytes:,} bytes of the write-ahead log")
        else:
            typer.echo(f"lag      {found.lag_rows} events, {found.lag_seconds:.1f} s")
        if found.parked:
            typer.echo(f"parked   {found.parked} events; see `dovecote parked list`")
        typer.echo(f"progress {found.since}")
    raise typer.Exit(0 if found.active else 1)
