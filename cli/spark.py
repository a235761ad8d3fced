"""`dovecote spark`: Spark jobs, on this machine or on a cluster."""

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cli.logs import LogFormat, configure
from devstack.jars import spark_kafka_jars
from devstack.java import java
from outbox.errors import BadSettings
from outbox.settings import load
from spark_jobs.settings import PREFIX, DedupSettings

app = typer.Typer(help="Run a Spark job.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _spark() -> None:
    """Run a Spark job."""


@app.command()
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
    _require_spark()
    if check:
        raise typer.Exit(_checked(settings))
    from spark_jobs.main import run_dedup

    configure(log_format)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it tells, the job tells
    os.environ.update(java().environment())
    run_dedup(
        settings,
        master=master or settings.spark.master or "local[*]",
        jars=spark_kafka_jars(),
        json_lines=json,
        adopt=adopt,
    )


def _checked(settings: DedupSettings) -> int:
    """Print what was looked at; return the exit status."""
    from spark_jobs.check import check

    findings = list(check(settings))
    for what, problem in findings:
        typer.echo(f"ok    {what}" if problem is None else f"FAIL  {what}: {problem}")
    return 1 if any(finding.problem for finding in findings) else 0


def _require_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        msg = "PySpark is not installed here: pip install 'dovecote[spark]'"
        raise BadSettings(msg)
