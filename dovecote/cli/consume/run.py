"""`dovecote consume run`: hand the records of topics to a function until told to stop."""

import logging
import os
import sys
import threading
import time
from typing import Annotated

import typer

from dedup.consumer import Consumer
from dedup.rules.policies.departures import HandlerExited
from dedup.rules.policies.expressions import load_function
from dedup.settings.consumer import PREFIX, ConsumeSettings
from dovecote.cli.options import CheckOption, ConfigOption, LogFormatOption, LogLevelOption
from dovecote.process.http.state import served
from dovecote.process.logs import LogFormat, LogLevel, configure, share_log
from dovecote.process.memory import relax
from dovecote.process.settings.loading import load
from dovecote.process.signals import on_end
from dovecote.process.telemetry import set_up_spans
from dovecote.process.tokens import asked
from dovecote.processes.child import child
from outbox.errors import BadSettings

# Beyond the drain: to commit, and to leave the group.
_LONGEST_END = 8.0
_SILENT = "Kafka does not answer: ending without it"


def run(
    *,
    config: ConfigOption = None,
    handler: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="The function that takes each event."),
    ] = None,
    check: CheckOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Hand the events of topics to a function.

    The function gets the events of a key in order, and different keys side by side. It may be
    async. Start as many consumers as you like: they share the partitions. SIGTERM ends a consumer
    gracefully.

    Example: dovecote consume run --config consume.toml --handler shop.orders:handle

    Every setting is also a variable: DOVECOTE_CONSUME_GROUP, DOVECOTE_CONSUME_HTTP__PORT,
    DOVECOTE_CONSUME_KAFKA__BOOTSTRAP_SERVERS.
    """
    own = child(os.environ)
    settings = load(ConsumeSettings, config, prefix=PREFIX, environ=os.environ)
    reference = handler or settings.handler
    if reference is None:
        msg = "no handler: give --handler module:function, or set handler in the file"
        raise BadSettings(msg)
    longest = settings.drain.total_seconds() + _LONGEST_END
    if own is not None:
        settings = settings.of_process(own.number)
    elif settings.processes > 1 and not check:
        from dovecote.processes.run import run_all  # one process alone does not load a server

        log = configure(log_format, log_level)
        run_all(settings.processes, settings.http, log, config=config, longest=longest)
        return
    # Handlers and filters are the user's modules; those in the way of installed ones lose.
    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds text
    consumer = Consumer(settings, load_function(reference, duty="handler"))
    if check:
        said = asked([settings.kafka])
        typer.echo(f"settings are valid: group {settings.group!r}, {settings.policy}{said}")
        return
    log = configure(log_format, log_level, process=own.number if own else None)
    if own is not None:
        share_log(own.turns)
    set_up_spans(settings.group)

    def end(*_: object) -> None:
        consumer.stop()
        threading.Thread(target=give_up, args=(log, longest, 0, _SILENT), daemon=True).start()

    on_end(end)
    if own is not None:
        own.ends_with_parent(end)
    relax()
    with served(
        settings.http,
        consumer.health,
        consumer.metrics.registry,
        log,
        part="consumer",
        labels={"group": settings.group},
        to_parent=own is not None,
    ) as port:
        if own is not None:
            own.serves(port)
        log.info("group %r reads %s", settings.group, ", ".join(settings.topics))
        try:
            consumer.run()
        except HandlerExited as error:
            # A handler's own threads that never end would keep the process for ever.
            watch = (
                log,
                _LONGEST_END,
                error.status,
                "threads of the handler do not end: ending anyway",
            )
            threading.Thread(target=give_up, args=watch, daemon=True).start()
            raise
    log.info("stopped")


def give_up(log: logging.Logger, seconds: float, status: int, why: str) -> None:
    """End the process if something keeps it from ending by itself."""
    time.sleep(seconds)
    log.warning("%s; what was not committed comes again", why)
    os._exit(status)
