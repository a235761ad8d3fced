"""`dovecote topic list`, `create` and `show`."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.options import ConfigOption, JsonOption
from dovecote.cli.topic.where import BootstrapOption, kafka_of
from dovecote.observe.topics import Topic, TopicAdmin
from outbox.errors import BadSettings

_RETENTION = "retention.ms"
_POLICY = "cleanup.policy"
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))


def list_(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Show Kafka's own topics as well.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """
    List the topics, with their partitions and what they keep.

    Offsets count records, and the ends of transactions as well.

    Example: dovecote topic list --bootstrap localhost:9092
    """
    topics = TopicAdmin(kafka_of(config, bootstrap))
    found = topics.describe(topics.names(internal=internal))
    if as_json:
        for each in found:
            typer.echo(printed.as_json(_summary(each)))
        return
    rows: list[tuple[str, ...]] = [("TOPIC", "PARTITIONS", "REPLICAS", "OFFSETS", "KEPT")]
    rows += [_row(each) for each in found]
    for line in _table(rows):
        typer.echo(line)
    if not found:
        typer.echo("no topics that we may see")


def create(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="The names.", show_default=False)
    ],
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="So many partitions; the broker's default otherwise."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="So many replicas; the broker's default otherwise."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SETTING", help="A setting of the topic, such as retention.ms=-1."
        ),
    ] = None,
) -> None:
    """
    Create topics.

    It changes no topic that is there already: a key would move to another partition.

    Example: dovecote topic create orders --partitions 6 --set min.insync.replicas=2
    """
    topics = TopicAdmin(kafka_of(config, bootstrap))
    made = topics.create(
        list(dict.fromkeys(names)),
        partitions=partitions,
        replicas=replicas,
        config=dict(map(_setting, settings or ())),
    )
    for name in made:
        typer.echo(f"created topic {printed.text(name)}")


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the partitions of a topic, and its own settings.

    Example: dovecote topic show orders --bootstrap localhost:9092
    """
    (found,) = TopicAdmin(kafka_of(config, bootstrap)).describe([name])
    if as_json:
        typer.echo(printed.as_json(_whole(found)))
        return
    own = {key: found.config[key] for key in sorted(found.changed)}
    for line in printed.lines({"topic": found.name, "id": found.id, **own}):
        typer.echo(line)
    rows: list[tuple[str, ...]] = [("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "FIRST", "END")]
    rows += [
        (
            str(each.number),
            _shown(each.leader),
            _listed(each.replicas),
            _listed(each.in_sync),
            _shown(each.first),
            _shown(each.end),
        )
        for each in found.partitions
    ]
    for line in _table(rows):
        typer.echo(line)


def _setting(given: str) -> tuple[str, str]:
    name, is_there, value = given.partition("=")
    if not is_there or not name.strip():
        msg = f"--set {given!r} is no setting: write NAME=VALUE, such as retention.ms=-1"
        raise BadSettings(msg)
    return name.strip(), value.strip()


def _row(topic: Topic) -> tuple[str, ...]:
    replicas = {len(each.replicas) for each in topic.partitions}
    return (
        printed.text(topic.name),
        str(len(topic.partitions)),
        "-".join(map(str, sorted({min(replicas), max(replicas)}))) if replicas else "?",
        _shown(topic.offsets),
        _kept(topic),
    )


def _kept(topic: Topic) -> str:
    """Return for how long records are kept, in words."""
    if not topic.config:
        return "?"
    policy = topic.config.get(_POLICY, "")
    parts = ["compacted"] if "compact" in policy else []
    if "delete" in policy:
        milliseconds = int(topic.config.get(_RETENTION) or -1)
        parts.append("for ever" if milliseconds < 0 else _duration(milliseconds))
    return ", ".join(parts)


def _duration(milliseconds: int) -> str:
    for size, unit in _UNITS:
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def _summary(topic: Topic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": topic.id,
        "partitions": len(topic.partitions),
        "replicas": [len(each.replicas) for each in topic.partitions],
        "offsets": topic.offsets,
        _POLICY: topic.config.get(_POLICY),
        _RETENTION: topic.config.get(_RETENTION),
    }


def _whole(topic: Topic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": topic.id,
        "config": {key: topic.config[key] for key in sorted(topic.changed)},
        "partitions": [
            {
                "partition": each.number,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "in_sync": list(each.in_sync),
                "first": each.first,
                "end": each.end,
            }
            for each in topic.partitions
        ],
    }


def _shown(number: int | None) -> str:
    return "?" if number is None else str(number)


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Return rows as lines; numbers are on the right of their columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.rjust(width) if number and cell[:1].isdigit() else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
