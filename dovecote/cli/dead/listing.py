"""`dovecote dead list` and `show`: see what the parts gave up."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dovecote.cli import printed
from dovecote.cli.dead.filters import PartOption, selected, watched
from dovecote.cli.options import (
    ConfigOption,
    EventIdArgument,
    IdOption,
    JsonOption,
    KeyOption,
    LimitOption,
    OfTopicOption,
    ReasonOption,
    SinceOption,
    TypeOption,
    UntilOption,
    WhereOption,
)
from dovecote.observe.dead import letters as parts
from dovecote.observe.dead.shapes import Failure, Letter, Page
from dovecote.observe.rules.counted import counted
from outbox.errors import DovecoteError

# So many letters have one id at most: an event that several parts gave up.
_MOST_OF_ID = 1_000


def list_(
    *,
    config: ConfigOption = None,
    part: PartOption = None,
    topic: OfTopicOption = None,
    key: KeyOption = None,
    id_: IdOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    limit: LimitOption = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Go on where an earlier list ended."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    List dead letters and parked events, newest first.

    It lists those of consumers, Spark jobs, push subscriptions and outboxes, without those that
    were requeued or dropped, and says what it looked at. The exit status is 1 if a part could not
    be asked.

    Example: dovecote dead list --config watch.toml --topic orders --reason "timed out"
    """
    watch = watched(config)
    chosen = selected(
        part=part,
        ids=[id_],
        topic=topic,
        key=key,
        type_=type_,
        reason=reason,
        since=since,
        until=until,
        where=where,
    )
    found = parts.page(watch, chosen, limit, after)
    for letter in found.letters:
        typer.echo(printed.as_json(letter.told()) if as_json else line(letter))
    _say_looked(found, as_json=as_json)
    require_all(found.failures, as_json=as_json)


def show(
    id_: EventIdArgument,
    *,
    config: ConfigOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the letters of one event, with headers and value.

    Example: dovecote dead show 0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10 --config watch.toml
    """
    watch = watched(config)
    chosen = selected(
        part=part,
        ids=[id_],
        topic=None,
        key=None,
        type_=None,
        reason=None,
        since=None,
        until=None,
        where=None,
    )
    found = parts.page(watch, chosen, _MOST_OF_ID)
    for each in found.letters:
        told = parts.show(watch, each.ref).told()
        for text in [printed.as_json(told)] if as_json else printed.lines(told):
            typer.echo(text)
    require_all(found.failures, as_json=as_json)
    if not found.letters:
        msg = f"no dead letter or parked event with id {id_}; `dovecote dead list` shows them"
        raise DovecoteError(msg)


def line(letter: Letter) -> str:
    """Return a letter as one line."""
    at = letter.at.strftime("%Y-%m-%d %H:%M:%S%z")
    why = f"{printed.text(letter.reason)} (x{letter.attempts})"
    type_ = "unreadable" if letter.type is None else printed.text(letter.type)
    return "  ".join(
        [
            at,
            printed.text(letter.part),
            printed.text(letter.id),
            printed.text(letter.topic),
            f"key {printed.key(letter.key)}",
            type_,
            why,
        ]
    )


def require_all(failures: Sequence[Failure], *, as_json: bool) -> None:
    """
    Say which parts could not be asked.

    Raises:
        DovecoteError: there are some.
    """
    for part, error in failures:
        if as_json:
            typer.echo(printed.as_json({"part": part, "error": error}))
        else:
            typer.echo(f"{printed.text(part)} cannot be asked: {printed.text(error)}", err=True)
    if failures:
        names = ", ".join(printed.text(each.part) for each in failures)
        msg = f"not everything was done, because these parts failed: {names}"
        raise DovecoteError(msg)


def _say_looked(found: Page, *, as_json: bool) -> None:
    if as_json:
        told = [{**each._asdict()} for each in found.looked]
        typer.echo(printed.as_json({"looked": told, "next": found.next}))
        return
    typer.echo(f"{counted(len(found.letters), 'letter')}; looked at:")
    for each in found.looked:
        typer.echo(f"  {printed.text(each.said)}")
    if found.next is not None:
        typer.echo(f"more: --after {found.next}")
