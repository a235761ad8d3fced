"""`dovecote push dead`: see the dead letters of a subscription, and decide about them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import typer

from dedup.rules.identity import Identity
from dovecote.cli import printed
from dovecote.cli.commands import App
from dovecote.cli.options import (
    HERE,
    AllOption,
    ApiOption,
    EventIdArgument,
    EventIdsArgument,
    JsonOption,
    KeyOption,
    LimitOption,
    OfTopicOption,
    ReasonOption,
    SinceOption,
    SubscriptionArgument,
    TokenOption,
    TypeOption,
    UntilOption,
)
from dovecote.observe.rules.counted import counted
from dovecote.push.client import Api
from outbox.errors import BadSettings, DovecoteError

dead = App("dead", "See, requeue or drop dead letters of a subscription.")


@dead.command("list")
def list_(
    subscription: SubscriptionArgument,
    *,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    List dead letters of a subscription.

    It lists them without those that were requeued or dropped.

    Example: dovecote push dead list slack
    """
    path = f"{_path(subscription)}?limit={limit}"
    found = Api.of(api, token_file)("GET", path)
    for letter in found["letters"]:
        typer.echo(printed.as_json(letter) if as_json else _line(letter))
    if not as_json:
        typer.echo(f"{len(found['letters'])} of {counted(found['total'], 'dead letter')}")


@dead.command()
def show(
    subscription: SubscriptionArgument,
    id_: EventIdArgument,
    *,
    as_json: JsonOption = False,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Show one dead letter, with its headers and value.

    Example: dovecote push dead show slack 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10
    """
    letter = Api.of(api, token_file)("GET", f"{_path(subscription)}/{quote(id_, safe='')}")
    if as_json:
        typer.echo(printed.as_json(letter))
        return
    # The API has text where a record has bytes.
    headers = [(name, None if text is None else text.encode()) for name, text in letter["headers"]]
    for line in printed.lines({**letter, "headers": headers}):
        typer.echo(line)


@dead.command()
def requeue(
    subscription: SubscriptionArgument,
    ids: EventIdsArgument = None,
    *,
    topic: OfTopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllOption = False,
    as_json: JsonOption = False,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Deliver dead letters again, with all their attempts.

    They are delivered to this subscription alone.

    Example: dovecote push dead requeue slack --reason 503
    """
    named = {"topic": topic, "key": key, "type": type_, "reason": reason}
    chosen = _chosen(ids, named, since=since, until=until, everything=everything)
    done = Api.of(api, token_file)("POST", f"{_path(subscription)}/requeue", chosen)
    _report(done, chosen, "requeued", as_json=as_json)


@dead.command()
def drop(
    subscription: SubscriptionArgument,
    ids: EventIdsArgument = None,
    *,
    topic: OfTopicOption = None,
    key: KeyOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllOption = False,
    as_json: JsonOption = False,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Remove dead letters from the list.

    They stay in the topic for as long as the topic keeps them.

    Example: dovecote push dead drop slack 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10
    """
    named = {"topic": topic, "key": key, "type": type_, "reason": reason}
    chosen = _chosen(ids, named, since=since, until=until, everything=everything)
    done = Api.of(api, token_file)("POST", f"{_path(subscription)}/drop", chosen)
    _report(done, chosen, "dropped", as_json=as_json)


def _path(subscription: str) -> str:
    return f"/subscriptions/{quote(subscription, safe='')}/dead"


def _chosen(
    ids: list[str] | None,
    named: Mapping[str, str | None],
    *,
    since: datetime | None,
    until: datetime | None,
    everything: bool,
) -> dict[str, Any]:
    """Return the letters that are meant, as the API takes it."""
    times = {"since": since, "until": until}
    chosen: dict[str, Any] = {"ids": ids, **named}
    chosen |= {name: None if time is None else time.isoformat() for name, time in times.items()}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if everything == bool(chosen):
        msg = (
            "say which ones: ids, --topic, --key, --type, --reason, --since, --until, or --all "
            "alone"
        )
        raise BadSettings(msg)
    return chosen or {"all": True}


def _report(
    done: list[dict[str, Any]], chosen: dict[str, Any], action: str, *, as_json: bool
) -> None:
    left = [letter for letter in done if letter.get("left")]
    if as_json:
        for letter in done:
            typer.echo(printed.as_json({"action": "left" if letter in left else action, **letter}))
    else:
        number = len(done) - len(left)
        typer.echo(f"{action} {counted(number, 'record')}")
        for letter in left:
            typer.echo(f"left {printed.text(letter['id'])}: {printed.text(letter['left'])}")
    known = {letter["id"] for letter in done}
    known |= {Identity(letter["source"], letter["id"]).name for letter in done}
    missing = [each for each in chosen.get("ids", ()) if each not in known]
    if missing:
        msg = f"no dead letter with id {', '.join(missing)}; `dovecote push dead list` shows them"
        raise DovecoteError(msg)
    if left:
        msg = f"{len(left)} of {len(done)} cannot be {action}: {printed.text(left[0]['left'])}"
        raise DovecoteError(msg)
    if not done:
        msg = "no such dead letter; `dovecote push dead list` shows them"
        raise DovecoteError(msg)


def _line(letter: dict[str, Any]) -> str:
    id_, origin = printed.text(letter["id"]), printed.text(letter["origin"])
    key = printed.key(None if letter["key"] is None else letter["key"].encode())
    why = f"{printed.text(letter['reason'])} (x{letter['attempts']})"
    return f"{id_}  {origin}  key {key}  {letter['died_at']}  {why}"
