"""`dovecote consume status`: members, offsets, lag, retries and dead letters of a consumer."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict

from dovecote.cli import printed
from dovecote.cli.options import ConfigOption, JsonOption
from dovecote.observe.group import at, look
from dovecote.observe.rules.counted import counted
from dovecote.observe.rules.group import GroupPartition, GroupStatus, is_well, verdict
from dovecote.observe.sources import ConsumerSource, WatchSettings, own_consumer, read
from dovecote.process.settings.loading import load
from outbox.errors import BadSettings, DovecoteError


class NamesParts(BaseModel):
    """Whether a file names parts; the rest of it is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    sources: dict[str, Any] | None = None


def status(
    *,
    config: ConfigOption = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="Where a process serves /readyz, such as http://host:9100; can be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the members of a group, and how each partition lags.

    The file is that of the consumer, or one that names the parts: then all its consumers are
    shown. All but /readyz comes from Kafka. The exit status is 1 if records wait and no member is
    there, nobody has a partition, a process is not ready, or Kafka cannot be asked.

    Example: dovecote consume status --config consume.toml
    """
    well, failures = True, list[str]()
    for name, source in _consumers(config, metrics or []).items():
        try:
            found = look(source)
        except DovecoteError as error:
            of = f"{printed.text(name)}: " if name else ""
            failures.append(f"{of}{printed.text(str(error))}")
            continue
        state, why = verdict(found)
        well = well and is_well(state) and not found.failures
        if as_json:
            typer.echo(printed.as_json(_told(name, found, state, why)))
        else:
            _show(name, found, f"{state}, {printed.text(why)}", _listing(name, config))
    if failures:
        raise DovecoteError("; ".join(failures))
    raise typer.Exit(0 if well else 1)


def _consumers(config: Path | None, metrics: list[str]) -> Mapping[str, ConsumerSource]:
    """
    Return the consumers that a file is about, by their names.

    Raises:
        BadSettings: it is about none.
    """
    named = load(NamesParts, config, prefix="DOVECOTE_NO_PART", environ={})
    if named.sources is None:
        found = {"": own_consumer(config, os.environ)}
    else:
        found = dict(read(WatchSettings, config).sources.consumer)
    if not found:
        msg = "the file names no consumer: give that of one, or a file with [sources.consumer]"
        raise BadSettings(msg)
    if metrics and len(found) > 1:
        msg = "--metrics is for the file of one consumer; write `metrics` in [sources.consumer.…]"
        raise BadSettings(msg)
    if any(not each.startswith(("http://", "https://")) for each in metrics):
        msg = "--metrics is no address of a process: write http://host:port"
        raise BadSettings(msg)
    if metrics:
        return {
            name: each.model_copy(update={"metrics": tuple(url.rstrip("/") for url in metrics)})
            for name, each in found.items()
        }
    return found


def _listing(name: str, config: Path | None) -> str:
    """Return the command that lists the letters of a consumer; a name is that of a watch file."""
    words = f"dead list --part {shlex.quote(f'consumer/{name}')}" if name else "consume dead list"
    return f"dovecote {words}" + (f" --config {shlex.quote(str(config))}" if config else "")


def _show(name: str, found: GroupStatus, state: str, listing: str) -> None:
    title = f"consumer {printed.text(name)}, " if name else ""
    typer.echo(f"{title}group {printed.text(found.group)}: {state}")
    for each in found.members:
        typer.echo(
            f"member    {printed.text(each.id)}  {printed.text(each.client)}  "
            f"{printed.text(each.host)}  {counted(each.partitions, 'partition')}"
        )
    for partition in found.partitions:
        typer.echo(f"partition {_line(partition)}")
    for partition in found.retries:
        due = f"  first due {at(partition.due)}" if partition.due is not None else ""
        typer.echo(f"retry     {_line(partition)}{due}")
    if found.dead is not None:
        least = "" if found.dead_whole else "at least "
        typer.echo(f"dead      {least}{counted(found.dead, 'letter')}; see `{listing}`")
    for answer in found.ready:
        word = "ready" if answer.ready else "not ready"
        typer.echo(f"process   {answer.url}  {word}  {printed.text(answer.said)}")
    for failure in found.failures:
        typer.echo(f"not asked {printed.text(failure)}")


def _line(each: GroupPartition) -> str:
    committed = "nothing" if each.committed is None else each.committed
    lag = "? records" if each.lag is None else counted(each.lag, "record")
    seconds = "?" if each.seconds is None else f"{each.seconds:.1f}"
    held = f"  held back, {each.completed:,} after it completed" if each.is_held_back else ""
    member = "nobody" if each.member is None else printed.text(each.member)
    return (
        f"{printed.text(each.topic)}/{each.partition}  committed {committed}  lag {lag}, "
        f"{seconds} s  {member}{held}"
    )


def _told(name: str, found: GroupStatus, state: str, why: str) -> dict[str, object]:
    told: dict[str, Any] = {"name": name, "state": state, "why": why, "lag": found.lag}
    told |= asdict(found)
    for each in (*told["partitions"], *told["retries"]):
        each["held_back"] = each["completed"] > 0
        each["due"] = None if each["due"] is None else each["due"].isoformat()
    return told
