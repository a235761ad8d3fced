"""`dovecote find`: where one event is, or the events of a key, over all parts."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.extras import needs
from dovecote.cli.options import (
    EXAMPLE,
    JsonOption,
    LimitOption,
    RequiredConfigOption,
    time_of,
)
from outbox.errors import BadSettings

if TYPE_CHECKING:
    from dovecote.observe.find import Life, One

_ID = typer.Argument(metavar="ID", help="The id of an event.", show_default=False)
_KEY = typer.Option("--key", metavar="KEY", help="Only this key, as text.")
_KEY_HEX = typer.Option(
    "--key-hex", metavar="HEX", help="Only this key, whose bytes are written in hexadecimal."
)
_TOPIC = typer.Option("--topic", metavar="TOPIC", help="Only events of this topic.")
_SINCE = typer.Option(
    "--since",
    metavar="TIME",
    parser=time_of,
    help=(
        "Read topics from this time on. For an id the time in it counts by default, and for a "
        f"key the last hour, such as {EXAMPLE}."
    ),
)
_UNTIL = typer.Option(
    "--until",
    metavar="TIME",
    parser=time_of,
    help=f"Read the events' own topics up to this time, such as {EXAMPLE}.",
)


def find(
    id_: Annotated[str | None, _ID] = None,
    *,
    config: RequiredConfigOption,
    key: Annotated[str | None, _KEY] = None,
    key_hex: Annotated[str | None, _KEY_HEX] = None,
    topic: Annotated[str | None, _TOPIC] = None,
    since: Annotated[datetime | None, _SINCE] = None,
    until: Annotated[datetime | None, _UNTIL] = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """
    Show the life of an event, and where it is now.

    It asks the parts that the file names: outboxes, topics, consumers, Spark jobs and push. A part
    that does not answer is named, and the others count. With a key it shows each event of the key,
    the newest last. It ends with status 1 if nothing is found.

    Example: dovecote find 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10 --config watch.toml
    """
    # The list of all commands would take twice as long with what only this one needs.
    with needs("consume", user="dovecote find"):
        from dovecote.observe.find import Query
        from dovecote.observe.find import find as find_all
        from dovecote.observe.sources import WatchSettings, read

    watch = read(WatchSettings, config, environ=os.environ)
    query = Query(
        id=id_, key=_bytes(key, key_hex), topic=topic, since=since, until=until, limit=limit
    )
    life = find_all(watch, query).by_file(config)
    for line in [printed.as_json(life.as_json())] if as_json else _lines(life):
        typer.echo(line)
    if not life.found:
        raise typer.Exit(1)


def _bytes(key: str | None, key_hex: str | None) -> bytes | None:
    if key is not None and key_hex is not None:
        msg = "give one of --key and --key-hex"
        raise BadSettings(msg)
    if key_hex is None:
        return None if key is None else key.encode(errors="surrogateescape")
    try:
        return bytes.fromhex(key_hex)
    except ValueError:
        msg = f"--key-hex {key_hex[:100]!r} is not hexadecimal: write two digits for each byte"
        raise BadSettings(msg) from None


def _lines(life: "Life") -> Iterator[str]:
    if life.left_out:
        yield f"{life.left_out:,} older events are left out; --limit shows more"
    for each in life.events:
        yield from _one(each)
        yield ""
    if not life.found:
        yield f"not found: {life.where}"
    for looked in life.looked:
        since = "its beginning" if looked.since is None else _time(looked.since)
        yield f"looked at    {printed.text(looked.part)}, from {since} to {_time(looked.until)}"
    for failure in life.failures:
        yield f"failed       {printed.text(failure.part)}: {printed.text(failure.error)}"
    if life.failures and not life.found:
        yield "the answer is incomplete: mend what failed, and ask again"


def _one(one: "One") -> Iterator[str]:
    yield (
        f"event {printed.text(one.id)}  source {printed.text(one.source)}  "
        f"topic {printed.text(one.topic or '?')}  key {printed.key(one.key)}"
    )
    for step in one.steps:
        words = [_time(step.at), printed.text(step.part), step.what, printed.text(step.detail)]
        yield "  " + "  ".join(words).rstrip()
    for standing in one.standings:
        yield f"  now        {printed.text(standing.where)}"
    for standing in one.standings:
        if standing.waits_for:
            yield f"  waits for  {printed.text(standing.waits_for)}"


def _time(at: datetime | None) -> str:
    if at is None:
        return "?"
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
