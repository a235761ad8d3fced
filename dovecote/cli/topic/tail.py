"""`dovecote topic tail`: read the events of a topic."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer

from dedup.rules.record import Record
from dovecote.cli import printed
from dovecote.cli.options import (
    ConfigOption,
    IdOption,
    JsonOption,
    KeyOption,
    TypeOption,
    WhereOption,
)
from dovecote.cli.topic.where import BootstrapOption, kafka_of
from dovecote.observe.reading import Reader
from dovecote.observe.rules.selection import selection
from dovecote.observe.rules.start import start_of
from outbox import envelope
from outbox.errors import InvalidEvent
from outbox.timestamps import time_of

_LAST = "-10"


def tail(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="START",
            help="Read from here on: `beginning`, `end`, -N for the last N of each partition, "
            '"15m ago", or a time such as 2026-02-01T09:30+01:00.',
        ),
    ] = _LAST,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="Show at most this many."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this partition.")
    ] = None,
    key: KeyOption = None,
    id_: IdOption = None,
    type_: TypeOption = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="SOURCE", help="Only events of this source.")
    ] = None,
    where: WhereOption = None,
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="Show records of open and aborted transactions too."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Show the events of a topic.

    Each partition is shown in its order, and partitions come as the broker sends them. Nobody is
    disturbed by it: it belongs to no consumer group.

    Example: dovecote topic tail orders -b localhost:9092 --from "15m ago" --key order-42
    """
    wanted = selection(key=key, id_=id_, type_=type_, source=source, where=where)
    begin = start_of(start, now=datetime.now(UTC))
    reader = Reader(kafka_of(config, bootstrap), name, uncommitted=uncommitted)
    records = reader.records(begin, partition=partition, follow=follow)
    try:
        for record in islice(filter(wanted.selects, records), limit):
            typer.echo(printed.as_json(_fields(record)) if as_json else _line(record))
    finally:
        records.close()  # type: ignore[attr-defined]  # a generator


def _line(record: Record) -> str:
    at = time_of(record.timestamp)
    when = "no time" if at is None else f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z"
    place = f"{record.partition}/{record.offset}"
    return "  ".join([when, place, f"key {printed.key(record.key)}", *_parts(record)])


def _parts(record: Record) -> Iterator[str]:
    """Yield what the event in a record says, or why it says nothing."""
    try:
        event = envelope.decode(record)
        yield printed.text(event.type)
        yield f"id {printed.text(event.id)}"
    except InvalidEvent as error:
        yield f"unreadable: {printed.text(str(error))}"
    try:
        state = envelope.delivery(record) if envelope.was_delivered(record) else None
    except InvalidEvent as error:
        yield f"history unreadable: {printed.text(str(error))}"
    else:
        if state is not None:
            yield f"attempt {state.attempt}"
            due = None if state.not_before is None else time_of(state.not_before)
            if due is not None:
                yield f"due {due:%Y-%m-%d %H:%M:%S}Z"
            if state.error:
                yield printed.text(state.error)
    yield "no value" if record.value is None else _text(record.value)


def _text(value: bytes) -> str:
    """Return a value as it is where it is readable, otherwise quoted."""
    try:
        return printed.text(value.decode())
    except UnicodeDecodeError:
        return printed.quoted(value)


def _fields(record: Record) -> dict[str, object]:
    told: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
    }
    try:
        event = envelope.decode(record)
        told |= {
            "id": event.id,
            "type": event.type,
            "source": event.source,
            "subject": event.subject,
            "time": envelope.format_time(event.time),
        }
    except InvalidEvent as error:
        told["unreadable"] = str(error)
    return told | {"headers": list(record.headers), "value": _value(record.value)}


def _value(value: bytes | None) -> object:
    """Return a value as the JSON that it is; otherwise its bytes."""
    try:
        return None if value is None else json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return value


def _refuse(name: str) -> object:
    msg = f"{name} is not JSON"
    raise ValueError(msg)
