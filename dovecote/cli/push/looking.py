"""`dovecote push show`, `attempts` and `update`: look at one subscription, and change it."""

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from dovecote.cli import printed
from dovecote.cli.options import (
    HERE,
    ApiOption,
    JsonOption,
    SinceOption,
    SubscriptionArgument,
    TokenOption,
)
from dovecote.process import strict_json
from dovecote.push.client import Api
from outbox.errors import BadSettings, DovecoteError

_PAUSE_SECONDS = 1.0
# An attempt of any age must have these.
_FIELDS = ("event_id", "topic", "partition", "offset", "number", "at", "seconds", "outcome")


def show(
    id_: SubscriptionArgument,
    *,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show one subscription: its fields, state and results.

    Secrets are masked.

    Example: dovecote push show slack
    """
    found = _object(Api.of(api, token_file)("GET", _path(id_)))
    if as_json:
        typer.echo(printed.as_json(found))
        return
    for name, value in _flat(found):
        typer.echo(f"{name:28} {value}".rstrip())


def attempts(
    id_: SubscriptionArgument,
    *,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only those that did not deliver.")
    ] = False,
    since: SinceOption = None,
    event: Annotated[
        str | None,
        typer.Option("--event", metavar="ID", help="Only those for the event with this id."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")
    ] = False,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the last requests of a subscription, oldest first.

    The database keeps the last 100 of each. With --follow, more than 100 within a second are not
    all shown.

    Example: dovecote push attempts slack --failed --follow
    """
    ask, seen = Api.of(api, token_file), set[tuple[object, ...]]()
    while True:
        found = list(_attempts(ask("GET", f"{_path(id_)}/attempts")))
        now = set[tuple[object, ...]]()
        for each in reversed(found):
            name = tuple(each[field] for field in _FIELDS[:6])
            now.add(name)
            if name not in seen and _is_meant(each, failed=failed, since=since, event=event):
                typer.echo(printed.as_json(each) if as_json else _line(each))
        seen = now
        if not follow:
            return
        time.sleep(_PAUSE_SECONDS)


def update(
    id_: SubscriptionArgument,
    *,
    set_: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="SETTING",
            help="A field and its value, as JSON or text, such as limits.rate=50; null gives it "
            "its default; can be repeated.",
        ),
    ],
    version: Annotated[
        int | None,
        typer.Option(
            "--version", metavar="N", help="Change nothing if it has another version by now."
        ),
    ] = None,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Change single fields of a subscription.

    All else stays, secrets too, and it goes on where it is. The API refuses what would not be
    valid, and a subscription that somebody changes meanwhile.

    Example: dovecote push update slack --set limits.rate=50 --set endpoint.timeout=20s
    """
    given = dict(_pair(each) for each in set_)
    body: dict[str, Any] = {"set": given}
    if version is not None:
        body["version"] = version
    found = _object(Api.of(api, token_file)("PATCH", _path(id_), body))
    names = ", ".join(printed.text(name) for name in given)
    version_ = printed.text(str(found.get("version")))
    typer.echo(f"{printed.text(str(found.get('id')))}  version {version_}  set {names}")


def _pair(text: str) -> tuple[str, object]:
    """Return a field's path and its value: JSON, or text that is none."""
    name, is_pair, value = text.partition("=")
    if not (is_pair and name):
        msg = f"--set {text!r} is not FIELD=VALUE, such as limits.rate=50"
        raise BadSettings(msg)
    try:
        return name, strict_json.loads(value)
    except ValueError:
        return name, value


def _path(id_: str) -> str:
    return f"/subscriptions/{quote(id_, safe='')}"


def _object(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        msg = "the API answers, but with no subscription: is it `dovecote push serve`?"
        raise DovecoteError(msg)
    return answer


def _attempts(answer: object) -> Iterator[Mapping[str, Any]]:
    for each in answer if isinstance(answer, list) else [None]:
        if (
            not isinstance(each, dict)
            or not each.keys() >= {*_FIELDS}
            or not isinstance(each["at"], int | float)
            or not isinstance(each["seconds"], int | float)
        ):
            msg = "the API answers, but with no attempts: is it `dovecote push serve`?"
            raise DovecoteError(msg)
        yield each


def _is_meant(
    each: Mapping[str, Any], *, failed: bool, since: datetime | None, event: str | None
) -> bool:
    return (
        (not failed or each["outcome"] != "delivered")
        and (event is None or each["event_id"] == event)
        and (since is None or each["at"] >= since.timestamp())
    )


def _line(each: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(each["at"], UTC).strftime("%Y-%m-%d %H:%M:%S%z")
    key = printed.key(None if each.get("key") is None else str(each["key"]).encode())
    status = "no answer" if each.get("status") is None else each["status"]
    detail = f"  ({printed.text(str(each['detail']))})" if each.get("detail") else ""
    return (
        f"{at}  {printed.text(str(each['outcome']))}  {printed.text(str(status))}"
        f"  {each['seconds'] * 1000:.0f} ms  attempt {printed.text(str(each['number']))}"
        f"  {printed.text(str(each['event_id']))}  {printed.text(str(each['topic']))}"
        f"/{printed.text(str(each['partition']))}/{printed.text(str(each['offset']))}"
        f"  key {key}{detail}"
    )


def _flat(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of an object by their paths, as `update` takes them."""
    for name, value in found.items():
        path = printed.text(f"{before}{name}")
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        elif value is None:
            yield path, ""
        else:
            yield path, printed.text(value if isinstance(value, str) else json.dumps(value))
