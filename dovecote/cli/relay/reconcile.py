"""`dovecote relay reconcile`: go on after a restore, or with another Kafka cluster."""

import json
import os
from typing import Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.options import ConfigOption, JsonOption, LogFormatOption, LogLevelOption
from dovecote.process.logs import LogFormat, LogLevel, configure, one_line
from dovecote.process.settings.loading import load
from relay.kafka.properties import check_properties
from relay.operating.reconcile import Accepted, Reconciled
from relay.operating.reconcile import reconcile as look
from relay.settings import PREFIX, RelaySettings

_MOST_LINES = 20


def reconcile(
    *,
    config: ConfigOption = None,
    accept_restored: Annotated[
        bool,
        typer.Option(
            "--accept-restored",
            help="Go on with this database, which was restored to an earlier state.",
        ),
    ] = False,
    accept_cluster: Annotated[
        bool,
        typer.Option(
            "--accept-cluster", help="Publish to this Kafka cluster, which replaces another one."
        ),
    ] = False,
    as_json: JsonOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Compare an outbox with Kafka after a restore.

    Run it when a snapshot of the database was restored, or the Kafka cluster was replaced. It
    shows how many events Kafka has already, how many Kafka lacks, and which events Kafka has that
    the database lost. It changes nothing, unless one of the options accepts the difference. Then
    it publishes the events that Kafka lacks, once and in order, and relays go on. End the relays
    first. If the command is interrupted, run it again.

    Example: dovecote relay reconcile --config relay.toml --accept-restored
    """
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    check_properties(settings.producer_properties(outbox="any"))
    configure(log_format, log_level)
    accepted = Accepted(restored=accept_restored, cluster=accept_cluster)
    for found in look(settings, accepted):
        if as_json:
            typer.echo(json.dumps(_fields(found)))
        else:
            _show(found)


def _fields(found: Reconciled) -> dict[str, object]:
    account = found.account
    return {
        "name": found.name,
        "done": found.done,
        "reason": found.reason,
        "published_already": account.published_already,
        "to_publish": account.to_publish,
        "to_park": len(account.waiting),
        "missing_here": len(account.missing),
        "ids": [each.id for each in account.missing],
    }


def _show(found: Reconciled) -> None:
    account = found.account
    typer.echo(f"outbox              {found.name}")
    state = one_line(found.reason or "its relay goes on by itself")
    typer.echo(f"state               {state}")
    typer.echo(f"on Kafka already    {account.published_already:,}")
    typer.echo(f"{'published now' if found.done else 'to be published':<20}{account.to_publish:,}")
    typer.echo(f"parked, or behind   {len(account.waiting):,}")
    typer.echo(f"lost by the database {len(account.missing):,}")
    for each in account.missing[:_MOST_LINES]:
        typer.echo(f"  {each.id}  {printed.text(each.topic)}  key {printed.key(each.key)}")
    if len(account.missing) > _MOST_LINES:
        typer.echo(f"  and {len(account.missing) - _MOST_LINES:,} more: `--json` has all")
