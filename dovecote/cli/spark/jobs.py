"""`dovecote spark dedup`, and the other commands that run jobs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dovecote.cli.options import (
    AdoptOption,
    CheckOption,
    ConfigOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    MasterOption,
    RequiredConfigOption,
)
from dovecote.cli.spark.environment import looking, prepare, report, require_spark
from dovecote.process.logs import LogFormat, LogLevel
from dovecote.process.settings.loading import load
from spark_jobs.query.settings import PREFIX, DedupSettings


def dedup(
    *,
    config: ConfigOption = None,
    check: CheckOption = False,
    master: MasterOption = None,
    adopt: AdoptOption = False,
    json: JsonOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Deduplicate records per key, from Kafka to Kafka.

    SIGTERM ends the job after the batch that is under way. With --check it looks at topics and
    checkpoint, too; with --json it prints a line for each batch.

    Example: dovecote spark dedup --config dedup.toml --master "local[2]"

    Every setting is also a variable: DOVECOTE_SPARK_SPARK__CHECKPOINT,
    DOVECOTE_SPARK_KAFKA__BOOTSTRAP_SERVERS.
    """
    settings = load(DedupSettings, config, prefix=PREFIX, environ=os.environ)
    require_spark()
    if check:
        from spark_jobs.jobs.check import check as look

        with looking([settings.spark], log_format, log_level) as checkpoints:
            raise typer.Exit(report(look(settings, checkpoints)))
    from spark_jobs.jobs.main import run_dedup

    prepare(log_format, log_level)
    run_dedup(
        settings,
        master=master or settings.spark.master or "local[*]",
        json_lines=json,
        adopt=adopt,
    )


def _stateful(name: str, file: str, told: str) -> Callable[..., None]:
    """Return the command that runs a stateful job; its help begins with `told`."""

    def command(
        *,
        config: ConfigOption = None,
        check: CheckOption = False,
        master: MasterOption = None,
        adopt: AdoptOption = False,
        json: JsonOption = False,
        log_format: LogFormatOption = LogFormat.TEXT,
        log_level: LogLevelOption = LogLevel.INFO,
    ) -> None:
        require_spark()
        from spark_jobs.stateful.settings import JOBS

        # Aggregates are the user's modules; those in the way of installed ones lose.
        sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
        settings = load(JOBS[name], config, prefix=PREFIX, environ=os.environ)
        if check:
            from spark_jobs.jobs.files import check_stateful

            with looking([settings.spark], log_format, log_level) as checkpoints:
                raise typer.Exit(report(check_stateful(settings, checkpoints)))
        from spark_jobs.jobs.main import run_stateful

        prepare(log_format, log_level)
        run_stateful(
            settings,
            master=master or settings.spark.master or "local[*]",
            json_lines=json,
            adopt=adopt,
        )

    command.__doc__ = f"""{told}
SIGTERM ends the job after the batch that is under way. With --check it looks at topics and
checkpoint, too; with --json it prints a line for each batch.

Example: dovecote spark {name} --config {file} --master "local[2]"
"""
    return command


pairing = _stateful(
    "pairing",
    "calls.toml",
    "Pair the events of two topics.\n\nEach pair has one result, complete or one-sided, once.",
)
sessions = _stateful(
    "sessions", "clicks.toml", "Build session windows per key, each final once.\n"
)
delay = _stateful(
    "delay",
    "retries.toml",
    "Hold records until their time has come.\n\nEach record goes to another topic, once, at the "
    "time in its header `dovecote_not_before`.",
)


def aggregate(
    *,
    config: RequiredConfigOption,
    check: CheckOption = False,
    master: MasterOption = None,
    adopt: AdoptOption = False,
    json: JsonOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Run the aggregations that a file declares.

    The file is a flow as HOCON, YAML or JSON; each result of its steps is written once. SIGTERM
    ends the job after the batches that are under way. With --check it looks at topics and
    checkpoints, too; with --json it prints a line for each batch.

    Example: dovecote spark aggregate --config orders.conf --master "local[2]"
    """
    require_spark()
    from spark_jobs.jobs.flow import load_flow

    settings, jobs = load_flow(config, os.environ)
    if check:
        from spark_jobs.jobs.running import look

        places = [each.spark for each in jobs.values()]
        with looking(places, log_format, log_level) as checkpoints:
            raise typer.Exit(report(look(jobs, checkpoints)))
    from spark_jobs.jobs.main import run_flow

    prepare(log_format, log_level)
    run_flow(
        jobs,
        settings,
        master=master or settings.master or "local[*]",
        json_lines=json,
        adopt=adopt,
    )


def together(
    config: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="The TOML files of the jobs, of any kind."),
    ],
    *,
    check: CheckOption = False,
    master: MasterOption = None,
    adopt: AdoptOption = False,
    json: JsonOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Run several jobs in one Spark.

    That is cheaper than a Spark for each job, and each job does the same as alone. Each file names
    the kind of its job by `type` in [operator]. If one job ends, all end. Spark itself has the
    settings of the first file. With --check it looks at topics and checkpoints, too; with --json
    it prints a line for each batch.

    Example: dovecote spark together dedup.toml pairing.toml sessions.toml
    """
    require_spark()
    from spark_jobs.jobs.files import check_all, load_all

    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
    jobs = load_all(config, environ=os.environ)
    if check:
        places = [each.spark for each in jobs]
        with looking(places, log_format, log_level) as checkpoints:
            raise typer.Exit(report(check_all(jobs, checkpoints)))
    from spark_jobs.jobs.main import run_together

    prepare(log_format, log_level)
    run_together(
        jobs,
        master=master or jobs[0].spark.master or "local[*]",
        json_lines=json,
        adopt=adopt,
    )
