"""`dovecote consume skip`: step over a batch that cannot be read, with a note of who and why."""

import getpass
import os
import socket
from dataclasses import asdict
from typing import Annotated, TypeAlias

import typer

from dedup.kafka.dead_topic import GROUP as DEAD
from dedup.rules import topics as of_topics
from dedup.rules.unread import Place, SkipNote, place_of
from dedup.settings.dead import PREFIX, DeadSettings
from dedup.unread.notes import summary
from dedup.unread.probing import skip as noted
from dovecote.cli import printed
from dovecote.cli.options import ConfigOption, JsonOption
from dovecote.process.settings.loading import load
from dovecote.process.topics import topics
from outbox.errors import BadSettings

PlaceArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="Topic, partition and offset that cannot be read, such as orders/0/42.",
        show_default=False,
    ),
]
WhyOption: TypeAlias = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="Why it may be lost: it is kept.")
]
ByOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="The person that decides; by default user and machine."
    ),
]


def skip(
    place: PlaceArgument,
    *,
    why: WhyOption,
    by: ByOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Step over a batch that the consumers of a group cannot read.

    The consumers may run meanwhile. All records of the batch are lost to the group, and to no
    other. A record that can be read is never stepped over. The batch may also lie in the
    dead-letter topic, which `dovecote consume dead` cannot read then. The topic `dovecote.skips`
    keeps what was stepped over, by whom, when and why.

    Example: dovecote consume skip orders/0/42 --why "a test of the shop" --config consume.toml
    """
    found = parsed(place)
    settings = load(DeadSettings, config, prefix=PREFIX, environ=os.environ)
    group = _group(settings, found.topic)
    topics(settings.kafka)  # it names a Kafka that is away
    note = noted(settings.kafka, group, found, by=by or who(), why=why)
    say(note, as_json=as_json)


def _group(settings: DeadSettings, topic: str) -> str:
    """
    Return the group that reads a topic, as the settings say.

    Raises:
        BadSettings: none does.
    """
    if topic in {settings.retries.dead_letter_topic, settings.output.get("dead_letter_topic")}:
        return DEAD
    if settings.group is None:
        msg = "the settings name no group: give --config with the file of the consumer"
        raise BadSettings(msg)
    read = [*of_topics.matched(settings.topics, [topic]), *settings.retries.retry_topics()]
    if topic not in read:
        msg = f"group {settings.group!r} does not read topic {topic!r}, as its settings say"
        raise BadSettings(msg)
    return settings.group


def parsed(place: str) -> Place:
    """
    Return the place that an argument names.

    Raises:
        BadSettings: it names none.
    """
    try:
        return place_of(place)
    except ValueError as error:
        raise BadSettings(str(error)) from None


def who() -> str:
    """Return the user and the machine; the number of a user without a name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # as of a container that runs under any number
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def say(note: SkipNote, *, as_json: bool) -> None:
    """Print what is stepped over."""
    typer.echo(printed.as_json(asdict(note)) if as_json else printed.text(summary(note)))
