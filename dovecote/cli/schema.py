"""`dovecote schema`: the JSON Schema of a file, for editors and for checks elsewhere."""

import json
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from dovecote.cli.extras import needs


class Kind(StrEnum):
    """The files that have one."""

    AGGREGATION = "aggregation"
    AUDIT = "audit"
    CONSOLE = "console"
    CONSUME = "consume"
    DEDUP = "dedup"
    DELAY = "delay"
    PAIRING = "pairing"
    PUSH = "push"
    RELAY = "relay"
    SESSIONS = "sessions"
    WATCH = "watch"


# They are loaded when they are asked for.
_MODELS = {
    Kind.AUDIT: "dovecote.observe.audit_settings:AuditSettings",
    Kind.CONSOLE: "dovecote.console.settings:ConsoleSettings",
    Kind.CONSUME: "dedup.settings.consumer:ConsumeSettings",
    Kind.DEDUP: "spark_jobs.query.settings:DedupSettings",
    Kind.PUSH: "dovecote.push.settings:PushSettings",
    Kind.RELAY: "relay.settings:RelaySettings",
    Kind.WATCH: "dovecote.observe.sources:WatchSettings",
}


def schema(
    kind: Annotated[
        Kind,
        typer.Argument(metavar="KIND", help=f"One of {', '.join(Kind)}.", show_default=False),
    ],
) -> None:
    """
    Print the JSON Schema of a file.

    An editor completes and checks settings with it. For a subscription, run `dovecote push
    schema`.

    Example: dovecote schema relay > relay.schema.json
    """
    with needs("relay", user="dovecote schema"):
        typer.echo(json.dumps(_schema(kind), indent=2))


def _schema(kind: Kind) -> dict[str, Any]:
    from dovecote.process.settings.schema import written

    if kind is Kind.AGGREGATION:
        from spark_jobs.operators.aggregation.config import json_schema

        return json_schema()
    if kind in _MODELS:
        module, name = _MODELS[kind].split(":")
        return written(getattr(import_module(module), name))
    from spark_jobs.stateful.settings import JOBS

    return written(JOBS[kind])
