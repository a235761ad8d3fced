"""`dovecote console`: serve one page on which every part is seen."""

import os
import threading

import typer

from dovecote.cli.extras import require
from dovecote.cli.options import CheckOption, ConfigOption, LogFormatOption, LogLevelOption
from dovecote.process.logs import LogFormat, LogLevel, configure
from dovecote.process.signals import on_end


def console(
    *,
    config: ConfigOption = None,
    check: CheckOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Serve a page that shows all parts and their troubles.

    It asks Postgres, Kafka and the parts from outside, and changes nothing unless the table
    [console] of the file says `write = true`.

    Example: dovecote console --config watch.toml
    """
    require("fastapi", "uvicorn", extra="push", user="the console")
    # The web server is not loaded for other commands.
    from dovecote.console.process import running
    from dovecote.console.settings import ConsoleSettings
    from dovecote.observe.sources import read
    from outbox.errors import BadSettings

    settings = read(ConsoleSettings, config, os.environ)
    sources = settings.sources
    parts = len([*sources.outbox, *sources.consumer, *sources.spark, *sources.push])
    if not parts:
        msg = "there is nothing to watch: name the parts in [sources] of --config FILE"
        raise BadSettings(msg)
    if check:
        typer.echo(f"settings are valid: {parts} part{'' if parts == 1 else 's'}")
        return
    log = configure(log_format, log_level)
    ending = threading.Event()

    def end(*_: object) -> None:
        ending.set()

    on_end(end)
    with running(settings) as found:
        log.info("serving the console on %s", found.url)
        ending.wait()
    log.info("stopped")
