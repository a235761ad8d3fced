"""`dovecote relay status`: which relay is active, and how far it lags."""

import json
import os
from dataclasses import asdict

import typer

from dovecote.cli.options import ConfigOption, JsonOption
from dovecote.observe.rules.counted import counted
from dovecote.process.logs import one_line
from dovecote.process.settings.loading import load
from dovecote.process.states import exit_status
from relay.operating.status import Status
from relay.operating.status import status as look
from relay.settings import PREFIX, RelaySettings


def status(
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show which relay is active, and how far it lags.

    The exit status is 1 if no relay is active, or none for one of the shards, or if it does not
    work.

    Example: dovecote relay status --config relay.toml --json
    """
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    shards = settings.own_shards()
    found = [look(settings, shard) for shard in shards]
    if not as_json:
        for each in found:
            _show(each)
    elif len(found) == 1:
        typer.echo(json.dumps(asdict(found[0])))
    else:
        divided = {"name": settings.name, "shards": [asdict(each) for each in found]}
        typer.echo(json.dumps(divided))
    raise typer.Exit(exit_status(each.state for each in found))


def _show(found: Status) -> None:
    typer.echo(f"outbox   {found.name}")
    typer.echo(f"state    {_how(found)}")
    typer.echo(f"active   {one_line(found.active or 'no relay')}")
    if found.lag_bytes is not None:
        typer.echo(f"lag      {found.lag_bytes:,} bytes of the write-ahead log")
    if found.lag_bytes is None or found.lag_rows:
        typer.echo(f"lag      {counted(found.lag_rows or 0, 'event')}, {found.lag_seconds:.1f} s")
    if found.parked:
        typer.echo(f"parked   {counted(found.parked, 'event')}; see `dovecote relay parked list`")
    typer.echo(f"progress {one_line(str(found.since))}")


def _how(found: Status) -> str:
    """Return the state in words."""
    return f"{found.state}: {one_line(found.reason)}"
