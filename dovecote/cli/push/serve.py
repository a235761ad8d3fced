"""`dovecote push serve`: deliver records to the endpoints, and serve the API and the page."""

import logging
import os
import sys
import threading

import typer

from dovecote.cli.extras import require_push
from dovecote.cli.options import CheckOption, ConfigOption, LogFormatOption, LogLevelOption
from dovecote.process.logs import LogFormat, LogLevel, configure, share_log
from dovecote.process.settings.loading import load
from dovecote.process.signals import on_end

# The process also commits and leaves its groups after the requests that are under way.
_LONGEST_END = 40.0


def serve(
    *,
    config: ConfigOption = None,
    check: CheckOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Deliver records to the endpoints of subscriptions.

    It also serves the API and a page. Start as many processes as you like with one database: they
    share the work. SIGTERM ends a process gracefully.

    Example: dovecote push serve --config push.toml

    Every setting is also a variable: DOVECOTE_PUSH_DSN, DOVECOTE_PUSH_HTTP__PORT,
    DOVECOTE_PUSH_BROKERS__DEFAULT__BOOTSTRAP_SERVERS.
    """
    require_push()
    # The web server and the HTTP client are not loaded for other commands.
    from dovecote.process.memory import relax
    from dovecote.process.telemetry import set_up_spans
    from dovecote.process.tokens import asked
    from dovecote.processes.child import child
    from dovecote.processes.run import run_all
    from dovecote.push.process import bounds, engine, running
    from dovecote.push.settings import PREFIX, PushSettings
    from dovecote.push.store.secrets import Keys

    own = child(os.environ)
    settings = load(PushSettings, config, prefix=PREFIX, environ=os.environ)
    Keys(settings.secrets.keys)
    if check:
        said = asked(settings.brokers.values())
        typer.echo(f"settings are valid: brokers {', '.join(sorted(settings.brokers))}{said}")
        return
    log = configure(log_format, log_level, process=own.number if own else None)
    if own is not None:
        share_log(own.turns)
    if own is None and settings.processes > 1:
        run_all(
            settings.processes,
            settings.http,
            log,
            config=config,
            longest=_LONGEST_END,
            bounds=bounds(settings.api),
            max_body=settings.api.max_body,
        )
        return
    settings = settings if own is None else settings.of_process()
    set_up_spans("dovecote-push")
    ending = threading.Event()

    def end(*_: object) -> None:
        # From now on, because a server that is away may keep even the start from ending.
        threading.Thread(target=_give_up, daemon=True).start()
        ending.set()

    on_end(end)
    if own is not None:
        own.ends_with_parent(end)
    around = None if own is None else own.knows_callers
    with running(settings, engine(settings), around=around) as found:
        # A collection of all that is loaded by now would make every delivery wait.
        relax()
        # With a parent, users ask that one.
        level = logging.INFO if own is None else logging.DEBUG
        log.log(level, "serving the API and the page on %s", found.at.url)
        if own is not None:
            own.serves(found.at.port)
        ending.wait()
    log.info("stopped")


def _give_up() -> None:
    """End the process when a server does not answer and keeps it from ending by itself."""
    threading.Event().wait(_LONGEST_END)
    sys.stderr.write("dovecote: a server does not answer: ending without it\n")
    os._exit(0)
