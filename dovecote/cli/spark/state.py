"""`dovecote spark state`: what a stateful job remembers."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from dovecote.cli.options import (
    JsonOption,
    KeyOption,
    LogFormatOption,
    LogLevelOption,
    MasterOption,
    RequiredConfigOption,
)
from dovecote.cli.printed import visible
from dovecote.cli.spark.environment import prepare, require_spark
from dovecote.process.logs import LogFormat, LogLevel
from outbox.errors import BadSettings

if TYPE_CHECKING:  # it needs PySpark, which may not be installed
    from spark_jobs.stateful.state import BucketState


def state(
    *,
    config: RequiredConfigOption,
    key: KeyOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Show the state of a stateful job.

    It is the state after the newest batch; the job may run meanwhile. A key of several fields is
    the JSON list of them. The exit status is 1 if the job knows nothing about the key.

    Example: dovecote spark state --config calls.toml --key '["ann","bob"]'
    """
    require_spark()
    from spark_jobs.jobs.files import load_all
    from spark_jobs.query.configuring import configuration
    from spark_jobs.query.session import close_session, open_session
    from spark_jobs.stateful.settings import StatefulSettings
    from spark_jobs.stateful.state import read

    # Aggregates are the user's modules; those in the way of installed ones lose.
    sys.path.append(os.getcwd())  # noqa: PTH109  # sys.path holds strings
    (settings,) = load_all([config], environ=os.environ)
    if not isinstance(settings, StatefulSettings):
        msg = (
            f"{settings.spark.query!r} is a deduplicating job: this looks into what pairing, "
            "sessions and delay remember"
        )
        raise BadSettings(msg)
    prepare(log_format, log_level)
    chosen = master or settings.spark.master or "local[*]"
    spark = open_session(configuration(settings.spark, master=chosen))
    try:
        found = list(read(spark, settings))
    finally:
        close_session(spark)
    raise typer.Exit(show(found, key, as_json=as_json))


def show(found: "list[BucketState]", key: str | None, *, as_json: bool) -> int:
    """Print what was found; return the exit status."""
    entries = [
        {"bucket": each.bucket, **entry}
        for each in found
        for entry in each.entries
        if key is None or _is(key, entry["key"])
    ]
    if as_json or key is not None:
        for entry in entries:
            told = json.dumps(entry, indent=None if as_json else 2, ensure_ascii=False)
            typer.echo(visible(told))
        if key is not None and not entries:
            typer.echo(f"nothing is known of the key {key}", err=True)
            return 1
        return 0
    typer.echo("BUCKET  KEYS  OPEN  BYTES")
    for each in found:
        typer.echo(f"{each.bucket:<8}{each.keys:<6}{each.open:<6}{each.size}")
    sums = [sum(getattr(each, name) for each in found) for name in ("keys", "open", "size")]
    typer.echo(f"{'all':<8}{sums[0]:<6}{sums[1]:<6}{sums[2]}")
    return 0


def _is(wanted: str, key: Any) -> bool:  # noqa: ANN401  # JSON
    if isinstance(key, str):
        return key == wanted
    try:
        return bool(json.loads(wanted) == key)
    except (ValueError, RecursionError):
        return False
