"""`dovecote relay doctor`: what state an outbox is in, and what resolves it."""

import json
import os
from dataclasses import asdict
from itertools import chain
from typing import Annotated, TypeAlias

import typer

from dovecote.cli.options import ConfigOption, JsonOption
from dovecote.process.logs import one_line
from dovecote.process.settings.loading import load
from relay.operating.doctor import examine, misnumbered
from relay.operating.standby_slots import look_at, places
from relay.settings import PREFIX, RelaySettings

StandbyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--standby",
        metavar="HOST:PORT",
        show_default=False,
        help="Look at slots on this standby, too; the port of `dsn` is the default. Repeatable.",
    ),
]


def doctor(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    standby: StandbyOption = None,
) -> None:
    """
    Find problems of an outbox, and how to resolve them.

    It uses the settings of the relay, changes nothing, and disturbs no running relay. The exit
    status is 1 if anything has failed.

    Example: dovecote relay doctor --config relay.toml
    """
    failed = False
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    there = places(settings, standby or [])
    if wrong := misnumbered(settings):
        typer.echo(json.dumps(asdict(wrong)) if as_json else one_line(str(wrong)))
        raise typer.Exit(1)
    for shard in settings.own_shards():
        about = {} if shard.of == 1 else {"outbox": shard.name}
        if about and not as_json:
            typer.echo(f"{shard}:")
        of_standbys = look_at(settings, there) if shard.number == 0 else ()
        for finding in chain(examine(settings, shard), of_standbys):
            failed = failed or finding.level == "fail"
            typer.echo(json.dumps(about | asdict(finding)) if as_json else one_line(str(finding)))
    raise typer.Exit(1 if failed else 0)
