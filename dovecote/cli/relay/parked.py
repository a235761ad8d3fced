"""`dovecote relay parked`: see the events that cannot be published, and decide about them."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

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
    OfTopicOption,
    ReasonOption,
    SinceOption,
    TypeOption,
    UntilOption,
)
from dovecote.observe.rules.counted import counted
from dovecote.process.settings.loading import load
from outbox.errors import BadSettings, DovecoteError
from relay.postgres.desk import (
    EVERYTHING,
    Action,
    Asked,
    Content,
    Desk,
    ParkedEvent,
    Which,
    desk,
    require_known,
)
from relay.settings import PREFIX, RelaySettings

_POLL_SECONDS = 0.2
# The most topics and keys with too many parked events that are named.
_MOST_CROWDS = 10
_LONGEST_WAIT = 60.0

parked = App("parked", "See, requeue or drop events that cannot be published.")

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the relay has done it.")]


@parked.command("list")
def list_(
    *,
    config: ConfigOption = None,
    topic: OfTopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """
    List parked events, in the order of the stream.

    Example: dovecote relay parked list --config relay.toml --topic orders
    """
    which = _which([], topic, key, type_, reason, since, until)
    with desk(_settings(config)) as opened:
        found = opened.events(which, limit)
        census = opened.counted()
        elsewhere = opened.elsewhere()
    for event in found:
        typer.echo(printed.as_json(_fields(event)) if as_json else _line(event))
    if not as_json:
        total, waiting = census.events, census.waiting
        behind = f", of which {waiting} only wait for an earlier one of their key" * bool(waiting)
        shown = f"{len(found)} of {counted(total, 'parked event')}{behind}"
        typer.echo(shown if total else "nothing is parked")
        for crowd in census.crowds[:_MOST_CROWDS]:
            typer.echo(f"too many: {crowd.said(opened.limits)}")
        for name, count in elsewhere.items():
            typer.echo(f"under another name or shard, {name!r}: {counted(count, 'event')}")


@parked.command()
def show(
    id_: EventIdArgument,
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show one parked event, and why it is parked.

    Example: dovecote relay parked show 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10 --config relay.toml
    """
    which = _which([id_])
    with desk(_settings(config)) as opened:
        found = opened.events(which, 10)
        require_known(which, found)
        for event in found:
            content = opened.content(event.number) or Content(None, [])
            told = {**_fields(event), **_carried(content)}
            for line in [printed.as_json(told)] if as_json else printed.lines(told):
                typer.echo(line)


@parked.command()
def requeue(
    ids: EventIdsArgument = None,
    *,
    config: ConfigOption = None,
    topic: OfTopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllOption = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Publish parked events after you have fixed the cause.

    The relay publishes an event that holds its key together with all other events of the key, in
    their order. An event that is refused again stays parked.

    Example: dovecote relay parked requeue --topic orders --key order-42 --wait --config relay.toml
    """
    which = _which(ids or [], topic, key, type_, reason, since, until)
    _require_meant(which, everything=everything)
    _ask("requeue", _settings(config), which, wait=wait, as_json=as_json)


@parked.command()
def drop(
    ids: EventIdsArgument = None,
    *,
    config: ConfigOption = None,
    topic: OfTopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllOption = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Delete parked events: they are never published.

    Other events of their key stay parked until you requeue them.

    Example: dovecote relay parked drop 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10 --config relay.toml
    """
    which = _which(ids or [], topic, key, type_, reason, since, until)
    _require_meant(which, everything=everything)
    _ask("drop", _settings(config), which, wait=wait, as_json=as_json)


def _settings(config: Path | None) -> RelaySettings:
    """Return the settings, which mean one shard."""
    settings = load(RelaySettings, config, prefix=PREFIX, environ=os.environ)
    shards = settings.own_shards()
    if len(shards) > 1:
        msg = (
            f"outbox {settings.name!r} has {len(shards)} shards: name one by {PREFIX}_SHARD=0 … "
            f"{len(shards) - 1}; `dovecote relay status` says which have parked events"
        )
        raise BadSettings(msg)
    return settings


def _which(
    ids: Sequence[str],
    topic: str | None = None,
    key: str | None = None,
    *more: Any,  # noqa: ANN401  # as `Which` has them: type, reason, since, until
) -> Which:
    try:
        known_by = [str(UUID(each)) for each in ids]
    except ValueError:
        msg = f"an event's id is a UUID, and one of these is not: {', '.join(ids)}"
        raise BadSettings(msg) from None
    return Which(known_by, topic, None if key is None else os.fsencode(key), *more)


def _require_meant(which: Which, *, everything: bool) -> None:
    narrowed = bool(which.ids) or replace(which, ids=()) != EVERYTHING
    if everything == narrowed:
        msg = (
            "say which events: their ids, --topic, --key, --type, --reason, --since, --until, or "
            "--all alone"
        )
        raise BadSettings(msg)


def _ask(
    action: Action, settings: RelaySettings, which: Which, *, wait: bool, as_json: bool
) -> None:
    with desk(settings) as opened:
        if which.ids:
            require_known(which, opened.events(which, 10 * len(which.ids)))
        asked = opened.ask(action, which)
        if not asked.commands:
            msg = "no such event is parked; `dovecote relay parked list` shows what is"
            raise DovecoteError(msg)
        has_relay = opened.has_relay()
        if wait and not has_relay:
            typer.echo(f"no relay is active: waiting {_LONGEST_WAIT:.0f} s for one", err=True)
        done = wait and _done(opened, asked)
        left = opened.left(asked) if done else None
        told = {"action": action, "events": asked.events, "done": done, "left": left}
    if as_json:
        typer.echo(json.dumps(told))
    elif not done:
        who = "the active relay" if has_relay else "no relay is active, the next one"
        typer.echo(f"asked to {action} {counted(asked.events, 'event')}; {who} does it")
    else:
        typer.echo(f"{_PAST[action]} {counted(asked.events - (left or 0), 'event')}")
    if left:
        stay = "stays" if left == 1 else "stay"
        msg = (
            f"{left} of {counted(asked.events, 'event')} {stay} parked: "
            "see `dovecote relay parked list`"
        )
        raise DovecoteError(msg)


_PAST: dict[Action, str] = {"requeue": "requeued", "drop": "dropped"}


def _done(opened: Desk, asked: Asked) -> bool:
    """Wait until the relay has done what it was asked for."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while not opened.are_done(asked):
        if time.monotonic() > deadline:
            msg = (
                f"not done after {_LONGEST_WAIT:.0f} s: is a relay active? See "
                "`dovecote relay status`. It will be done when one is"
            )
            raise DovecoteError(msg)
        time.sleep(_POLL_SECONDS)
    return True


def _line(event: ParkedEvent) -> str:
    at = event.parked_at.strftime("%Y-%m-%d %H:%M:%S%z")
    reason = f"{printed.text(event.reason)} (x{event.attempt})"
    why = "after an earlier one" if event.waits else reason
    topic, type_ = printed.text(event.topic), printed.text(event.type)
    return f"{event.id}  {topic}  key {printed.key(event.key)}  {type_}  {at}  {why}"


def _fields(event: ParkedEvent) -> dict[str, object]:
    return {
        "id": event.id,
        "topic": event.topic,
        "key": event.key,
        "type": event.type,
        "code": event.code,
        "reason": event.reason,
        "holds": event.holds,
        "attempt": event.attempt,
        "parked_at": event.parked_at.isoformat(),
        "source": event.source,
        "subject": event.subject,
        "content_type": event.content_type,
        "time": event.time.isoformat(),
        "size": event.size,
    }


def _carried(content: Content) -> dict[str, object]:
    return {"headers": list(content.headers), "value": content.value}
