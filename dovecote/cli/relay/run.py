"""`dovecote relay run`: publish the committed events of one outbox until told to stop."""

import logging
import os
import sys
import threading
import time

import typer

from dovecote.cli.options import CheckOption, ConfigOption, LogFormatOption, LogLevelOption
from dovecote.process.http.state import served
from dovecote.process.logs import LogFormat, LogLevel, configure
from dovecote.process.memory import relax
from dovecote.process.settings.loading import load
from dovecote.process.signals import on_end
from dovecote.process.telemetry import set_up_spans
from dovecote.process.tokens import asked
from outbox.postgres.session import without_secrets
from relay.health import Health
from relay.kafka.properties import check_properties
from relay.metrics import Metrics, Together
from relay.settings import PREFIX, RelaySettings
from relay.standby import Standby

# Above the grace that the loop gives to a batch in flight, below what supervisors give.
_LONGEST_END = 8.0


def run(
    config: ConfigOption = None,
    check: CheckOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Publish the committed events of one outbox to Kafka.

    The events of a key keep their order. Start as many relays as you like: one of them is active,
    or one for each shard, and the others stand by. SIGTERM ends a relay gracefully.

    Example: dovecote relay run --config relay.toml

    Every setting is also a variable: DOVECOTE_RELAY_DSN, DOVECOTE_RELAY_HTTP__PORT,
    DOVECOTE_RELAY_KAFKA__BOOTSTRAP_SERVERS.
    """
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    check_properties(settings.producer_properties(outbox="any"))
    if check:
        said = asked([settings.kafka])
        typer.echo(f"settings are valid: outbox {settings.name!r}, {settings.mode}{said}")
        return
    log = configure(log_format, log_level)
    set_up_spans("dovecote-relay")
    stop = threading.Event()
    health = Health(
        stall_after=settings.stall_after.total_seconds(),
        behind_after=settings.behind_after.total_seconds(),
        warn_bytes=settings.wal.warn_bytes,
    )

    def end(*_: object) -> None:
        health.ending()
        stop.set()
        threading.Thread(target=give_up, args=(log,), daemon=True).start()

    on_end(end)
    relax()
    metrics = [Metrics(shard.name) for shard in settings.own_shards()]
    labels = {"outbox": settings.name}
    with served(settings.http, health, Together(metrics), log, part="relay", labels=labels):
        log.info(
            "relay of outbox %r, %s, from %s",
            settings.name,
            settings.mode,
            without_secrets(settings.dsn),
        )
        Standby(settings, health=health, metrics=metrics).run(stop)
    log.info("stopped")
    sys.exit(0)


def give_up(log: logging.Logger) -> None:
    """End the process when a server that does not answer keeps it from ending by itself."""
    time.sleep(_LONGEST_END)
    log.warning("a server does not answer: ending without it, nothing is lost")
    # Progress is what the broker has committed; there is nothing here to tidy up.
    os._exit(0)
