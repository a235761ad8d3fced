"""`dovecote spark`: Spark jobs, on this machine or on a cluster."""

import logging
import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dovecote.cli.spark_state import state
from dovecote.cli.spark_status import status
from dovecote.devstack.kafka.jars import spark_kafka_jars
from dovecote.devstack.kafka.java import java
from dovecote.process.logs import LogFormat, configure
from dovecote.process.settings import load
from outbox.errors import BadSettings
from spark_jobs.query.settings import PREFIX, DedupSettings

spark = typer.Typer(
    help="Run a Spark job.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)


spark.command()(status)
spark.command()(state)


@spark.callback()
def _spark() -> None:
    """Run a Spark job."""


Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="TOML file; see docs/spark-operators.md")
]
Check = Annotated[bool, typer.Option("--check", help="look whether the job could run, and exit")]
Master = Annotated[
    str | None, typer.Option(help="where Spark runs; default: spark.master, else local[*]")
]
Adopt = Annotated[
    bool, typer.Option("--adopt", help="take over the markers of another query, once")
]
Json = Annotated[bool, typer.Option("--json", help="a JSON line per batch on stdout")]
Format = Annotated[LogFormat, typer.Option(help="text or json")]


@spark.command()
def dedup(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="TOML file; see docs/spark-dedup.md")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="look whether the job could run, and exit")
    ] = False,
    master: Annotated[
        str | None, typer.Option(help="where Spark runs; default: spark.master, else local[*]")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="take over the markers of another query, once")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="a JSON line per batch on stdout")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="text or json")] = LogFormat.TEXT,
) -> None:
    """
    Deduplicate per key and batch, from Kafka to Kafka, each record once.

    SIGTERM ends it after the batch under way.

    Example: dovecote spark dedup --config dedup.toml --master "local[2]"

    Every setting is also a variable: DOVECOTE_SPARK_SPARK__CHECKPOINT,
    DOVECOTE_SPARK_KAFKA__BOOTSTRAP_SERVERS.
    """
    settings = load(DedupSettings, config, prefix=PREFIX, environ=os.environ)
    require_spark()
    if check:
        from spark_jobs.jobs.check import check as look

        raise typer.Exit(_told(look(settings)))
    from spark_jobs.jobs.main import run_dedup

    prepare(log_format)
    run_dedup(
        settings,
        master=master or settings.spark.master or "local[*]",
        jars=spark_kafka_jars(),
        json_lines=json,
        adopt=adopt,
    )


@spark.command()
def pairing(
    *,
    config: Config = None,
    check: Check = False,
    master: Master = None,
    adopt: Adopt = False,
    json: Json = False,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """
    Pair the events of two topics: one result per call, complete or one-sided, once.

    SIGTERM ends it after the batch under way.

    Example: dovecote spark pairing --config calls.toml --master "local[2]"
    """
    _stateful("pairing", config, master, check=check, adopt=adopt, json=json, log=log_format)


@spark.command()
def sessions(
    *,
    config: Config = None,
    check: Check = False,
    master: Master = None,
    adopt: Adopt = False,
    json: Json = False,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """
    Build session windows per key, each final once.

    SIGTERM ends it after the batch under way.

    Example: dovecote spark sessions --config clicks.toml --master "local[2]"
    """
    _stateful("sessions", config, master, check=check, adopt=adopt, json=json, log=log_format)


@spark.command()
def delay(
    *,
    config: Config = None,
    check: Check = False,
    master: Master = None,
    adopt: Adopt = False,
    json: Json = False,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """
    Hold records until their `dovecote_not_before` has come, then put them on another topic, once.

    SIGTERM ends it after the batch under way.

    Example: dovecote spark delay --config retries.toml --master "local[2]"
    """
    _stateful("delay", config, master, check=check, adopt=adopt, json=json, log=log_format)


@spark.command()
def aggregate(
    *,
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            "-c",
            help="a flow as HOCON, YAML or JSON; see docs/aggregation.md",
            show_default=False,
        ),
    ],
    check: Check = False,
    master: Master = None,
    adopt: Adopt = False,
    json: Json = False,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """
    Run the steps of a flow: aggregations that a file declares, each result once.

    SIGTERM ends it after the batches under way.

    Example: dovecote spark aggregate --config orders.conf --master "local[2]"
    """
    require_spark()
    from spark_jobs.jobs.flow import load_flow

    settings, jobs = load_flow(config, os.environ)
    if check:
        from spark_jobs.jobs.running import look

        raise typer.Exit(_told(look(jobs)))
    from spark_jobs.jobs.main import run_flow

    prepare(log_format)
    run_flow(
        jobs,
        settings,
        master=master or settings.master or "local[*]",
        jars=spark_kafka_jars(),
        json_lines=json,
        adopt=adopt,
    )


@spark.command()
def together(
    config: Annotated[
        list[Path], typer.Argument(help="TOML files of jobs of any kind, `type` in [operator]")
    ],
    *,
    check: Check = False,
    master: Master = None,
    adopt: Adopt = False,
    json: Json = False,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """
    Run several jobs in one Spark, which is cheaper than one for each.

    Each is the same as alone. If one ends, all end. Spark itself is as the first file says.

    Example: dovecote spark together dedup.toml pairing.toml sessions.toml
    """
    require_spark()
    from spark_jobs.jobs.files import check_all, load_all

    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
    jobs = load_all(config, environ=os.environ)
    if check:
        raise typer.Exit(_told(check_all(jobs)))
    from spark_jobs.jobs.main import run_together

    prepare(log_format)
    run_together(
        jobs,
        master=master or jobs[0].spark.master or "local[*]",
        jars=spark_kafka_jars(),
        json_lines=json,
        adopt=adopt,
    )


def _stateful(
    name: str,
    config: Path | None,
    master: str | None,
    *,
    check: bool,
    adopt: bool,
    json: bool,
    log: LogFormat,
) -> None:
    require_spark()
    from spark_jobs.stateful.settings import JOBS

    # Aggregates are the user's modules; those in the way of installed ones lose.
    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
    settings = load(JOBS[name], config, prefix=PREFIX, environ=os.environ)
    if check:
        from spark_jobs.jobs.check import check_job
        from spark_jobs.operators.table import require

        raise typer.Exit(
            _told(check_job(settings, "operator", lambda: require(settings.operator)))
        )
    from spark_jobs.jobs.main import run_stateful

    prepare(log)
    run_stateful(
        settings,
        master=master or settings.spark.master or "local[*]",
        jars=spark_kafka_jars(),
        json_lines=json,
        adopt=adopt,
    )


def prepare(log: LogFormat) -> None:
    """Set up logging, and Java for Spark."""
    configure(log)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it tells, the job tells
    os.environ.update(java().environment())


def _told(looked_at: Iterable[tuple[str, str | None]]) -> int:
    """Print what was looked at; return the exit status."""
    failed = False
    for what, problem in looked_at:
        typer.echo(f"ok    {what}" if problem is None else f"FAIL  {what}: {problem}")
        failed |= problem is not None
    return 1 if failed else 0


def require_spark() -> None:
    """
    Look whether PySpark and what it needs are there.

    Raises:
        BadSettings: they are not.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        msg = "PySpark is not installed here: pip install './dovecote[spark]'"
        raise BadSettings(msg)
