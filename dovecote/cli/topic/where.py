"""Where Kafka is, for commands that only look at it."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dovecote.cli.extras import needs
from dovecote.observe.settings import PREFIX, KafkaAlone
from dovecote.process.settings.loading import load
from dovecote.process.topics import topics
from outbox.errors import BadSettings

BootstrapOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Kafka's address; by default the one that the file names, "
        "otherwise that of `dovecote stack`.",
    ),
]


def kafka_of(config: Path | None, bootstrap: str | None) -> Mapping[str, str]:
    """
    Return the properties of a client, from a file, an address, or the stack that runs here.

    Raises:
        BadSettings: none of them says where Kafka is.
        KafkaAway: Kafka does not answer there.
    """
    found = _named(config, bootstrap)
    topics(found)
    return found


def _named(config: Path | None, bootstrap: str | None) -> Mapping[str, str]:
    named = any(name.startswith(f"{PREFIX}_KAFKA") for name in os.environ)
    found: Mapping[str, str] = {}
    if config is not None or named:
        found = load(KafkaAlone, config, prefix=PREFIX, environ=os.environ).kafka
    if bootstrap is not None:
        return {**found, "bootstrap.servers": bootstrap}
    if not found:
        return {"bootstrap.servers": _of_stack()}
    return found


def _of_stack() -> str:
    msg = (
        "where is Kafka? Give --bootstrap HOST:PORT, or --config with a settings file, "
        "or start one: dovecote stack up"
    )
    try:
        with needs("stack", user="the stack"):
            state = import_module("dovecote.devstack.detached").status(None)
    except BadSettings:
        raise BadSettings(msg) from None
    if state is None or not state.running:
        raise BadSettings(msg)
    return str(state.bootstrap)
