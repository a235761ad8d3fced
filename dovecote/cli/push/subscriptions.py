"""The commands of `dovecote push` that manage subscriptions, by way of the API."""

import json
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dovecote.cli import printed
from dovecote.cli.consume.skip import ByOption, PlaceArgument, WhyOption, parsed, who
from dovecote.cli.options import (
    EXAMPLE,
    HERE,
    ApiOption,
    JsonOption,
    SubscriptionArgument,
    TokenOption,
)
from dovecote.process import strict_json
from dovecote.process.states import State
from dovecote.push.client import Api
from outbox.errors import BadSettings


def subscribe(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A subscription as .json or .toml; - reads JSON from standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the subscription.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="A topic to read; can be repeated."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL that requests go to.")
    ] = None,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Make a subscription.

    Making the same one again changes nothing.

    Example: dovecote push subscribe --id slack --topic flights --endpoint https://hooks.example/x

    With all other fields: dovecote push subscribe slack.json
    """
    given: dict[str, Any] = {} if file is None else _read(file)
    if id_ is not None:
        given["id"] = id_
    if topic:
        given["topics"] = topic
    if endpoint is not None:
        given["endpoint"] = {**given.get("endpoint", {}), "url": endpoint}
    if not given:
        msg = "say what: a file, or --id, --topic and --endpoint"
        raise BadSettings(msg)
    made = Api.of(api, token_file)("POST", "/subscriptions", given)
    state, why = made["health"]["state"], made["health"].get("reason", "")
    # A new one is always starting at first.
    remark = "" if state == State.STARTING else _remark(state, why)
    typer.echo(f"{made['id']}  {state}{remark}")


def list_(
    *, api: ApiOption = HERE, token_file: TokenOption = None, as_json: JsonOption = False
) -> None:
    """
    List subscriptions, with the results of their deliveries.

    Example: dovecote push list
    """
    ask = Api.of(api, token_file)
    for each in ask("GET", "/subscriptions"):
        typer.echo(json.dumps(each) if as_json else _line(each))


def pause(
    id_: SubscriptionArgument, *, api: ApiOption = HERE, token_file: TokenOption = None
) -> None:
    """
    Pause the deliveries of a subscription.

    Example: dovecote push pause slack
    """
    _say(Api.of(api, token_file)("POST", f"/subscriptions/{id_}/pause"))


def resume(
    id_: SubscriptionArgument, *, api: ApiOption = HERE, token_file: TokenOption = None
) -> None:
    """
    Resume the deliveries of a subscription.

    They go on where they were paused.

    Example: dovecote push resume slack
    """
    _say(Api.of(api, token_file)("POST", f"/subscriptions/{id_}/resume"))


def delete(
    id_: SubscriptionArgument, *, api: ApiOption = HERE, token_file: TokenOption = None
) -> None:
    """
    Delete a subscription.

    Requests that are under way are finished.

    Example: dovecote push delete slack
    """
    Api.of(api, token_file)("DELETE", f"/subscriptions/{id_}")
    typer.echo(f"{id_}  deleted")


def replay(
    id_: SubscriptionArgument,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=f"The time to start at, such as {EXAMPLE}, or `earliest`, or `latest`.",
        ),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION:OFFSET", help="The offset to start at; can be repeated."
        ),
    ] = None,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Deliver again from another position.

    Example: dovecote push replay slack --start 2026-02-01T09:30+01:00
    """
    moved = Api.of(api, token_file)(
        "POST", f"/subscriptions/{id_}/replay", {"start": _position(start, offset or [])}
    )
    for topic, partitions in moved["offsets"].items():
        for partition, number in partitions.items():
            typer.echo(f"{printed.text(topic)}/{partition} goes on at {number}")


def skip(
    id_: SubscriptionArgument,
    place: PlaceArgument,
    *,
    why: WhyOption,
    by: ByOption = None,
    api: ApiOption = HERE,
    token_file: TokenOption = None,
) -> None:
    """
    Step over a batch that a subscription cannot read.

    All records of the batch are lost to the subscription's group, and to no other. A record that
    can be read is never stepped over. The topic `dovecote.skips` keeps what was stepped over, by
    whom, when and why.

    Example: dovecote push skip slack flights/0/42 --why "a test of the airline"
    """
    topic, partition, offset = parsed(place)
    wanted = {"topic": topic, "partition": partition, "offset": offset, "why": why}
    note = Api.of(api, token_file)(
        "POST", f"/subscriptions/{id_}/skip", {**wanted, "by": by or who()}
    )
    last = note["until"] - 1
    typer.echo(f"{topic}/{partition}: offsets {note['first']} to {last} are stepped over")


def schema() -> None:
    """
    Print the JSON Schema of a subscription.

    Example: dovecote push schema > subscription.schema.json
    """
    from dovecote.push.rules.subscription.subscription import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


def _position(start: str | None, offsets: list[str]) -> object:
    """
    Return what options say of where to go on, as the API takes it.

    Raises:
        BadSettings: they say nothing, both, or nothing that can be read.
    """
    if (start is None) == (not offsets):
        msg = "give --start or --offset"
        raise BadSettings(msg)
    if start in {"earliest", "latest"}:
        return start
    if start is not None:
        try:
            time = datetime.fromisoformat(start)
        except ValueError:
            msg = f"--start {start!r} is not earliest, latest or a time such as 2026-02-01T09:30"
            raise BadSettings(msg) from None
        return {"time": (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()}
    found: dict[str, dict[str, int]] = {}
    for each in offsets:
        topic, _, place = each.partition(":")
        partition, _, number = place.partition(":")
        if not (partition.isdecimal() and number.isdecimal()):
            msg = f"--offset {each!r} is not TOPIC:PARTITION:OFFSET"
            raise BadSettings(msg)
        found.setdefault(topic, {})[partition] = int(number)
    return {"offsets": found}


def _read(file: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = tomllib.loads(text) if file.suffix == ".toml" else strict_json.loads(text)
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise BadSettings(msg) from error
    except (ValueError, RecursionError) as error:
        language = "TOML" if file.suffix == ".toml" else "JSON (a TOML file ends in .toml)"
        msg = f"{file} is not {language}: {error}"
        raise BadSettings(msg) from error
    if not isinstance(found, dict):
        msg = f"{file} holds no JSON object"
        raise BadSettings(msg)
    return found


def _line(each: dict[str, Any]) -> str:
    counts, delivery, health = each["counts"], each["delivery"], each["health"]
    why, since = health["reason"], health["since"]
    state = State(health["state"])
    if not state.is_green and since:
        why = f"{why}, since {since[:19]}Z"
    lag = "?" if delivery["lag"] is None else delivery["lag"]
    endpoint = each.get("endpoint")  # one that is not valid any more may lack it
    url = printed.text(str(endpoint.get("url", "?") if isinstance(endpoint, dict) else "?"))
    return (
        f"{each['id']}  {state}  lag {lag}  delivered {counts['delivered']}"
        f"  failed {counts['failed']}  dead {counts['dead']}  {url}" + _remark(state, why)
    )


def _remark(state: str, why: str) -> str:
    return f"  ({printed.text(why)})" if why and not State(state).is_green else ""


def _say(told: dict[str, Any]) -> None:
    stored = told["status"]["state"]
    # An active one has not delivered anything since this command.
    state = State.STARTING if stored == "active" else stored
    typer.echo(f"{told['id']}  {state}")
