"""`dovecote relay reshard`: publish an outbox in another number of shards."""

import os

import typer

from dovecote.cli.options import ConfigOption, LogFormatOption, LogLevelOption
from dovecote.process.logs import LogFormat, LogLevel, configure
from dovecote.process.settings.loading import load
from relay.kafka.properties import check_properties
from relay.operating.reshard import reshard as change
from relay.settings import PREFIX, RelaySettings


def reshard(
    config: ConfigOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Change the number of shards of an outbox.

    The settings of the relay have the new number. End all relays of the outbox first; services
    may go on writing. The command publishes the events that the old shards have not published. If
    it is interrupted, run it again. It needs the rights of the schema's owner, and REPLICATION
    where events are in the write-ahead log.

    Example: DOVECOTE_RELAY_DSN="dbname=shop user=owner" dovecote relay reshard -c relay.toml
    """
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    check_properties(settings.producer_properties(outbox="any"))
    configure(log_format, log_level)
    changed = change(settings)
    typer.echo(
        f"outbox {settings.name!r} is published with `shards = {settings.shards}`"
        + ("" if changed else ", as it was before")
    )
