"""`dovecote audit`: compare what was committed with what Kafka, inboxes and push have."""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovecote.cli.extras import needs
from dovecote.cli.options import (
    CheckOption,
    ConfigOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    time_of,
)
from dovecote.observe.rules.counted import counted
from dovecote.process.logs import LogFormat, LogLevel, configure
from dovecote.process.memory import relax
from dovecote.process.signals import on_end
from outbox.errors import BadSettings

if TYPE_CHECKING:
    from dovecote.audit.parts import Follower, Outbox, Plan
    from dovecote.observe.audit_settings import AuditSettings
    from dovecote.observe.sources import ConsumerSource, OutboxSource


def audit(
    *,
    config: ConfigOption = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            metavar="TIME",
            parser=time_of,
            help="Only what was written at this time or later, such as 2026-02-01T09:30+01:00.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Compare what there is now, say so, and end.")
    ] = False,
    verify: Annotated[
        Path | None,
        typer.Option("--verify", metavar="FILE", help="Check a file of statements, and end."),
    ] = None,
    drop_slot: Annotated[
        bool,
        typer.Option("--drop-slot", help="Drop the auditor's replication slots, and end."),
    ] = False,
    as_json: JsonOption = False,
    check: CheckOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """
    Compare what was committed with what consumers see.

    It finds events that were lost, doubled, late, altered or out of order, with code of its own.
    With --once, the exit status is 0 without findings, 1 with some, and 3 if it could not look at
    everything.

    Example: dovecote audit --config watch.toml --once --json
    """
    if verify is not None:
        _verify(verify)
        return
    # The list of all commands would take longer with what only this one needs.
    with needs("consume", user="dovecote audit"):
        from dovecote.audit.auditor import Auditor
        from dovecote.audit.store import Store
        from dovecote.observe.audit_settings import AuditSettings
        from dovecote.observe.sources import read

    settings = read(AuditSettings, config, os.environ)
    plan = _plan(settings, since)
    if not once and not drop_slot and plan.state is None:
        msg = (
            "audit.state is missing: name a file, from which the auditor goes on after a restart; "
            "or use --once"
        )
        raise BadSettings(msg)
    if check:
        typer.echo(f"settings are valid: {', '.join(each.part for each in plan.outboxes)}")
        return
    if drop_slot:
        _drop_slots(plan)
        return
    log = configure(log_format, log_level)
    relax()
    with (
        closing(Store(plan.state)) as store,
        store.explained(),
        closing(Auditor(plan, store)) as auditor,
    ):
        if once:
            outcome = auditor.once()
            _show(outcome.statement, as_json=as_json)
            raise typer.Exit(outcome.status)
        from dovecote.process.http.state import served

        stop = threading.Event()
        on_end(lambda *_: stop.set())
        with served(settings.audit.http, auditor, auditor.metrics.registry, log, part="audit"):
            log.info("auditing %s", ", ".join(each.part for each in plan.outboxes))
            auditor.run(stop, lambda told: _report(told, as_json=as_json))
    log.info("stopped")


def _drop_slots(plan: "Plan") -> None:
    from dovecote.audit.log.ending import end

    for each in plan.outboxes:
        name = end(each)
        said = "there is no slot" if name is None else f"slot {name} is dropped"
        typer.echo(f"{each.part}: {said}")


def _verify(file: Path) -> None:
    from dovecote.audit.rules.statement import first_broken

    try:
        with file.open(encoding="utf-8") as lines:
            wrong = first_broken(lines)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read {file}: {error}"
        raise BadSettings(msg) from error
    if wrong is not None:
        typer.echo(f"{file}: {wrong}")
        raise typer.Exit(1)
    typer.echo(f"{file}: each statement fits the one before")


def _plan(settings: "AuditSettings", since: datetime | None) -> "Plan":
    """
    Return what is audited as plain values.

    Raises:
        BadSettings: there is no outbox, or several clusters have them.
    """
    from dovecote.audit.parts import Plan, Pusher

    sources, own = settings.sources, settings.audit
    if not sources.outbox:
        msg = "sources.outbox is missing: name the outbox that is to be audited"
        raise BadSettings(msg)
    clusters = {tuple(sorted(each.kafka.items())) for each in sources.outbox.values()}
    if len(clusters) > 1:
        msg = "the outboxes have several Kafka clusters: audit each with a file of its own"
        raise BadSettings(msg)
    if not clusters or not dict(next(iter(clusters))).get("bootstrap.servers"):
        msg = 'kafka is missing: give it with "bootstrap.servers"'
        raise BadSettings(msg)
    at = own.partitions_since
    return Plan(
        outboxes=tuple(_outbox(name, each) for name, each in sources.outbox.items()),
        followers=tuple(
            _follower(name, each) for name, each in sources.consumer.items() if each.inbox
        ),
        pushers=tuple(
            Pusher(name=name, dsn=each.dsn, schema=each.schema_name, kafka=each.kafka)
            for name, each in sources.push.items()
            if each.dsn
        ),
        topics=own.topics,
        grace=own.grace.total_seconds(),
        late=own.late.total_seconds(),
        window=own.window.total_seconds(),
        order=own.order,
        foreign=own.foreign,
        foreign_sources=own.foreign_sources,
        accepted=frozenset(own.accepted),
        partitions_since=None if at is None else int(at.timestamp() * 1000),
        since=None if since is None else int(since.timestamp() * 1000),
        slot_bytes=own.slot_bytes,
        state=own.state,
        statements=own.statements,
    )


def _outbox(name: str, source: "OutboxSource") -> "Outbox":
    from dovecote.audit.parts import Outbox

    return Outbox(
        name=name,
        relay=source.name,
        dsn=source.dsn,
        schema=source.schema_name,
        retention=source.retention.total_seconds(),
        kafka=source.kafka,
        at_least_once=source.mode == "at_least_once",
    )


def _follower(name: str, source: "ConsumerSource") -> "Follower":
    from dovecote.audit.parts import Follower

    assert source.inbox is not None  # noqa: S101  # those without are left out
    retries = source.retries
    return Follower(
        name=name,
        group=source.group,
        topics=source.topics,
        retries=tuple(each.topic for each in retries.tiers),
        dead=retries.dead_letter_topic,
        dsn=source.inbox.dsn,
        schema=source.inbox.schema_name,
        kafka=source.kafka,
        retention=source.inbox.retention.total_seconds(),
        selective=source.policy not in {"exact", "every"}
        or source.filter is not None
        or bool(retries.skip_on),
    )


def _report(told: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json or "statement" in told:
        typer.echo(json.dumps(told))
    else:
        typer.echo(_line(told))


def _show(statement: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(statement))
        return
    for name, counts in sorted(statement["topics"].items()):
        typer.echo(
            f"topic/{name}: {counted(counts['rows'], 'row')}, "
            f"{counted(counts['records'], 'record')}, "
            f"{counts['matched']} matched, the latest after {counts['latest'] / 1000:.1f} s"
        )
    for name, counts in sorted(statement["consumers"].items()):
        typer.echo(
            f"{name}: {counted(counts['passed'], 'record')} passed, {counts['handled']} handled"
        )
    for each in statement["findings"]:
        typer.echo(_line(each))
    troubles = dict.fromkeys(statement["troubles"])  # several parts may have one server
    for trouble in troubles:
        typer.echo(f"not everything could be looked at: {trouble}")
    found, missed = len(statement["findings"]), len(troubles)
    typer.echo(counted(found, "finding") + (" so far" if missed else ""))


def _line(told: Mapping[str, Any]) -> str:
    key = "" if told["key"] is None else f"  key {told['key']}"
    places = ", ".join(told["places"])
    return (
        f"{told['kind']}  {told['topic']}  id {told['id']}{key}  {places}: {told['reason']}; "
        f"{told['do']}"
    )
