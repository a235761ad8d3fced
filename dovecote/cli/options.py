"""The options that several commands have, each with one wording."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dovecote.process.logs import LogFormat, LogLevel
from dovecote.process.settings.durations import duration

HERE = "http://127.0.0.1:8080"
"""The URL of an API on this machine."""

EXAMPLE = "2026-02-01T09:30+01:00"


def one_of(choices: type[StrEnum]) -> str:
    """Return how help shows the values of an option: `text|json`."""
    return "|".join(choices)


def time_of(given: str) -> datetime:
    """
    Return the time that the value of an option names, in UTC where it names no offset.

    Raises:
        BadParameter: it is not a time.
    """
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        msg = f"{given!r} is not a time; write 2026-02-01, or {EXAMPLE}"
        raise typer.BadParameter(msg) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def duration_of(given: str | timedelta) -> timedelta:
    """
    Return the duration that the value of an option names.

    Raises:
        BadParameter: it is none.
    """
    try:
        found = duration(given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not isinstance(found, timedelta) or found <= timedelta(0):
        msg = "must be longer than 0"
        raise typer.BadParameter(msg)
    return found


_config = typer.Option(
    "--config", "-c", metavar="FILE", help="Read the settings from this file.", show_default=False
)
ConfigOption: TypeAlias = Annotated[Path | None, _config]
RequiredConfigOption: TypeAlias = Annotated[Path, _config]
ConfigsOption: TypeAlias = Annotated[list[Path], _config]

CheckOption: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Validate the settings and exit.")
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object a line.")
]
LimitOption: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="Show at most this many.")
]

LogFormatOption: TypeAlias = Annotated[
    LogFormat,
    typer.Option("--log-format", metavar=one_of(LogFormat), help="Choose the format of the log."),
]
LogLevelOption: TypeAlias = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        metavar=one_of(LogLevel),
        case_sensitive=False,
        help="Log messages of this level and above.",
    ),
]

KeyOption: TypeAlias = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only this key, as text.")
]
IdOption: TypeAlias = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Only the event with this id.")
]
TypeOption: TypeAlias = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only events of this type.")
]
OfTopicOption: TypeAlias = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only events for this topic.")
]
WhereOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPRESSION",
        help="Only events for which it holds, such as `value.total > 100`.",
    ),
]
ReasonOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Only reasons that contain this text."),
]
# A time is parsed with the command line: a wrong one is reported before anything is asked for it.
SinceOption: TypeAlias = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="TIME",
        parser=time_of,
        help=f"Only what was given up at this time or later, such as {EXAMPLE}.",
    ),
]
UntilOption: TypeAlias = Annotated[
    datetime | None,
    typer.Option(
        "--until",
        metavar="TIME",
        parser=time_of,
        help=f"Only what was given up before this time, such as {EXAMPLE}.",
    ),
]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Ask no question first.")]
AllOption: TypeAlias = Annotated[bool, typer.Option("--all", help="All of them.")]

EventIdArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The id of an event.", show_default=False)
]
EventIdsArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="The ids of events.", show_default=False),
]

ApiOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--api",
        metavar="URL",
        envvar="DOVECOTE_API",
        show_envvar=True,
        help="The URL of the API that `dovecote push serve` has.",
    ),
]
TokenOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar="DOVECOTE_API_TOKEN_FILE",
        show_envvar=True,
        help=(
            "The file with the token. Otherwise DOVECOTE_API_TOKEN has it; or it is the one that "
            "`dovecote push serve` made for this user, if --api is on this machine."
        ),
    ),
]
SubscriptionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="Its id.", show_default=False)
]

MasterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs; by default `spark.master`, otherwise `local[*]`.",
    ),
]
AdoptOption: TypeAlias = Annotated[
    bool, typer.Option("--adopt", help="Take over the markers of another query, once.")
]
