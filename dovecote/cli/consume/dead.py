"""`dovecote consume dead`: see the records that were given up, and decide about them."""

import os
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from dedup.kafka.dead_topic import DeadTopic, Resolved
from dedup.retries.copies import delivery
from dedup.retries.letter import Action, Letter, Which, target
from dedup.retries.where import holds
from dedup.settings.dead import PREFIX, DeadSettings
from dovecote.cli import printed
from dovecote.cli.commands import App
from dovecote.cli.options import (
    AllOption,
    ConfigOption,
    EventIdArgument,
    EventIdsArgument,
    JsonOption,
    KeyOption,
    LimitOption,
    ReasonOption,
    SinceOption,
    TypeOption,
    UntilOption,
    WhereOption,
)
from dovecote.observe.dead.topics import read_topics
from dovecote.observe.rules.counted import counted
from dovecote.process.settings.loading import load
from dovecote.process.topics import topics
from outbox.envelope import Record
from outbox.errors import BadSettings, DovecoteError
from outbox.kafka_errors import right

dead = App("dead", "See, requeue or drop records that were given up.")

_NAMED = 5

TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="The dead-letter topic; by default the one that the file names.",
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Only this consumer group, or `*` for all; by default the one that the file names.",
    ),
]


@dead.command("list")
def list_(
    *,
    config: ConfigOption = None,
    topic: TopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    group: GroupOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """
    List records that were given up.

    It lists them in the order of their topic, without those that were requeued or dropped. The
    settings are those of the consumer or the Spark job.

    Example: dovecote consume dead list -c consume.toml --reason "timed out" --since 2026-02-01
    """
    settings, opened = _opened(config, topic)
    which = replace(
        _which(settings, (), key=key, reason=reason, since=since, until=until, group=group),
        type=type_,
        passes=None if where is None else holds(where),
    )
    found = opened.letters(which)
    for letter in found[:limit]:
        typer.echo(printed.as_json(_fields(letter)) if as_json else _line(letter))
    if not as_json:
        typer.echo(f"{min(len(found), limit)} of {counted(len(found), 'dead letter')}")


@dead.command()
def show(
    id_: EventIdArgument,
    *,
    config: ConfigOption = None,
    topic: TopicOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show one record, and why it was given up.

    Example: dovecote consume dead show 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10 --config consume.toml
    """
    _, opened = _opened(config, topic)
    found = opened.letters(Which(ids=[id_]))
    _require(found, [id_])
    for letter in found:
        told = {**_fields(letter), **_carried(opened.record(letter))}
        for line in [printed.as_json(told)] if as_json else printed.lines(told):
            typer.echo(line)


@dead.command()
def requeue(
    ids: EventIdsArgument = None,
    *,
    config: ConfigOption = None,
    topic: TopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    group: GroupOption = None,
    everything: AllOption = False,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic that they go to.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Handle records again, with all their attempts.

    Each record is requeued once, and the records of a key keep their order. They go to the first
    retry topic that the file names, otherwise to the topic they came from, where every group that
    reads it handles them. A record that lacks its value gets it back from where it still is. A
    record that cannot be requeued is named, and holds up no other.

    Example: dovecote consume dead requeue --key order-42 --config consume.toml
    """
    settings, opened = _opened(config, topic)
    which = replace(
        _which(settings, ids, key=key, reason=reason, since=since, until=until, group=group),
        type=type_,
        passes=None if where is None else holds(where),
    )
    _require_meant(which, everything=everything)
    where = to or settings.first_retry_topic()
    if where is not None:
        _require_topic(settings, where, "--to")
        if where == opened.topic:
            msg = f"{where!r} is the topic of the dead letters themselves: name another by --to"
            raise BadSettings(msg)
    known = _known(settings)
    readable = {*known, *settings.retries.retry_topics(), settings.first_retry_topic()}
    done = opened.resolve(
        which,
        "requeued",
        lambda each: target(each, to=where, known=known),
        read=readable.__contains__,
    )
    _say(done, which, "requeued", as_json=as_json)


@dead.command()
def drop(
    ids: EventIdsArgument = None,
    *,
    config: ConfigOption = None,
    topic: TopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    group: GroupOption = None,
    everything: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Remove records from the list.

    They stay in the topic for as long as the topic keeps them.

    Example: dovecote consume dead drop --reason "KeyError: 'amount'" --config consume.toml
    """
    settings, opened = _opened(config, topic)
    which = replace(
        _which(settings, ids, key=key, reason=reason, since=since, until=until, group=group),
        type=type_,
        passes=None if where is None else holds(where),
    )
    _require_meant(which, everything=everything)
    _say(opened.resolve(which, "dropped", lambda _: ""), which, "dropped", as_json=as_json)


def _opened(config: Path | None, topic: str | None) -> tuple[DeadSettings, DeadTopic]:
    settings = load(DeadSettings, config, prefix=PREFIX, environ=os.environ)
    named = topic or settings.topic()
    _require_topic(settings, named, "--topic")
    return settings, DeadTopic(settings.kafka, named)


def _require_topic(settings: DeadSettings, topic: str, option: str) -> None:
    if topic not in topics(settings.kafka):
        msg = (
            f"no topic {topic!r} that we may see; create it, name another by {option}, or, if it "
            f"is there, grant this user {right('Read', 'topic', topic)}, see docs/security.md"
        )
        raise DovecoteError(msg)


def _known(settings: DeadSettings) -> Collection[str]:
    """Return the topics that records may be requeued to, because they come from there."""
    return read_topics(settings.kafka, settings.topics, settings.topics_of_job())


def _which(
    settings: DeadSettings,
    ids: Collection[str] | None,
    *,
    key: str | None,
    reason: str | None,
    since: datetime | None,
    until: datetime | None,
    group: str | None,
) -> Which:
    return Which(
        ids=ids or (),
        key=None if key is None else os.fsencode(key),
        reason=reason,
        since=since,
        until=until,
        groups=_groups(group, settings),
    )


def _groups(given: str | None, settings: DeadSettings) -> Collection[str | None]:
    """Return whose letters are meant: by default the file's own, and those that name no group."""
    if given is not None:
        return () if given == "*" else (given,)
    return () if settings.group is None else (settings.group, None)


def _require_meant(which: Which, *, everything: bool) -> None:
    if everything == which.is_narrowed:
        msg = (
            "say which ones: ids, --key, --type, --reason, --since, --until, --where, or --all "
            "alone"
        )
        raise BadSettings(msg)


def _require(found: list[Letter], ids: Collection[str]) -> None:
    there = {each for letter in found for each in (letter.id, letter.name)}
    missing = [each for each in ids if each not in there]
    if missing:
        msg = (
            f"no dead letter with id {', '.join(missing)}; `dovecote consume dead list` shows them"
        )
        raise DovecoteError(msg)


def _say(resolved: Resolved, which: Which, action: Action, *, as_json: bool) -> None:
    done, left = resolved
    if as_json:
        for letter in done:
            typer.echo(printed.as_json({"action": action, **_fields(letter)}))
        for letter, why in left:
            typer.echo(printed.as_json({"action": "left", "why": why, **_fields(letter)}))
    else:
        typer.echo(f"{action} {counted(len(done), 'record')}")
        for letter, why in left:
            typer.echo(f"left {printed.text(letter.id)}: {printed.text(why)}")
    _require([*done, *(letter for letter, _ in left)], which.ids)
    if left:
        ids = ", ".join(printed.text(letter.id) for letter, _ in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        msg = f"{len(left)} of {len(done) + len(left)} cannot be {action}: {ids}{more}: "
        msg += printed.text(left[0][1])
        raise DovecoteError(msg)
    if not done:
        msg = "no such dead letter; `dovecote consume dead list` shows them"
        raise DovecoteError(msg)


def _line(letter: Letter) -> str:
    at = letter.died_at.strftime("%Y-%m-%d %H:%M:%S%z")
    why = f"{printed.text(letter.reason)} (x{letter.attempts})"
    group = "" if letter.group is None else f"  group {printed.text(letter.group)}"
    id_, origin = printed.text(letter.id), printed.text(letter.origin)
    return f"{id_}  {origin}{group}  key {printed.key(letter.key)}  {at}  {why}"


def _fields(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.id,
        "source": letter.source,
        "key": letter.key,
        "origin": letter.origin,
        "group": letter.group,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "died_at": letter.died_at.isoformat(),
        "partition": letter.at[0],
        "offset": letter.at[1],
        "size": letter.size,
        "without_value": letter.without_value,
        "value_at": None if letter.left is None else letter.left.encode().decode(),
    }


def _carried(record: Record) -> dict[str, object]:
    return {
        "first_seen": delivery(record).first_seen,
        "headers": list(record.headers),
        "value": record.value,
    }
