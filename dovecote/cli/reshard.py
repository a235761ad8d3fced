"""`dovecote reshard`: publish an outbox in another number of shards."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dovecote.process.logs import LogFormat, configure
from dovecote.process.settings import load
from relay.kafka.properties import check_properties
from relay.operating.reshard import reshard as change
from relay.settings import PREFIX, RelaySettings


def reshard(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="the relay's TOML file, with the new number"),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="text or json")] = LogFormat.TEXT,
) -> None:
    """
    Let an outbox be published in as many shards as its settings say from now on.

    End its relays first. What the old shards have not published is published; services write on.
    Interrupted, it can be run again. It takes the rights of the schema's owner, and REPLICATION
    where events are in the write-ahead log.

    Example: DOVECOTE_RELAY_DSN="dbname=shop user=owner" dovecote reshard --config relay.toml
    """
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    check_properties(settings.producer_properties(outbox="any"))
    configure(log_format)
    changed = change(settings)
    typer.echo(
        f"outbox {settings.name!r} is published with `shards = {settings.shards}`"
        + ("" if changed else ", as it was before")
    )
