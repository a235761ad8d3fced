"""`dovecote doctor`: what state an outbox is in, and what resolves it."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dovecote.process.settings import load
from relay.operating.doctor import examine, misnumbered
from relay.settings import PREFIX, RelaySettings


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="the relay's TOML file")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON line per finding")] = False,
) -> None:
    """
    Examine an outbox with its relay's settings, and say what resolves what is wrong.

    Changes nothing, and disturbs no relay that runs. Exit status 1 if anything has failed.

    Example: dovecote doctor --config relay.toml
    """
    failed = False
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    if wrong := misnumbered(settings):
        typer.echo(json.dumps(asdict(wrong)) if as_json else str(wrong))
        raise typer.Exit(1)
    for shard in settings.own_shards():
        about = {} if shard.of == 1 else {"outbox": shard.name}
        if about and not as_json:
            typer.echo(f"{shard}:")
        for finding in examine(settings, shard):
            failed = failed or finding.level == "fail"
            typer.echo(json.dumps(about | asdict(finding)) if as_json else str(finding))
    raise typer.Exit(1 if failed else 0)
