"""`dovecote dead requeue` and `drop`: decide about what the parts gave up."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer

from dovecote.cli import printed
from dovecote.cli.consume.skip import ByOption, who
from dovecote.cli.dead.filters import PartOption, selected, watched
from dovecote.cli.dead.listing import require_all
from dovecote.cli.options import (
    AllOption,
    ConfigOption,
    DryRunOption,
    EventIdsArgument,
    IdOption,
    JsonOption,
    KeyOption,
    OfTopicOption,
    ReasonOption,
    SinceOption,
    TypeOption,
    UntilOption,
    WhereOption,
    YesOption,
)
from dovecote.observe.dead import letters as parts
from dovecote.observe.dead.part import Picked, Verb
from dovecote.observe.dead.shapes import Failure, Fate, Selection
from dovecote.observe.sources import WatchSettings
from outbox.errors import BadSettings, DovecoteError

_MOST_NAMED = 20


def _command(verb: Verb, text: str) -> Callable[..., None]:
    """Return the command of a verb; all of them select in the same way."""

    def decide(
        ids: EventIdsArgument = None,
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
        everything: AllOption = False,
        dry_run: DryRunOption = False,
        yes: YesOption = False,
        by: ByOption = None,
        as_json: JsonOption = False,
    ) -> None:
        chosen = selected(
            part=part,
            ids=[*(ids or ()), id_],
            topic=topic,
            key=key,
            type_=type_,
            reason=reason,
            since=since,
            until=until,
            where=where,
        )
        _require_meant(chosen, everything=everything)
        _decide(verb, config, chosen, by, dry_run=dry_run, yes=yes, as_json=as_json)

    decide.__name__, decide.__doc__ = verb, text
    return decide


requeue = _command(
    "requeue",
    """
    Handle, deliver or publish again what was given up.

    It asks first. A letter of a consumer or a Spark job goes to the first retry topic, otherwise
    to where it comes from. A subscription's is delivered to it alone. A parked event is published
    by its relay, with all others of its key. Each letter is requeued once, even if the command is
    killed and run again. The exit status is 1 if a letter stays, or a part could not be asked.

    Example: dovecote dead requeue --part push/main/billing --reason 503 --config watch.toml
    """,
)

drop = _command(
    "drop",
    """
    Take letters off the list, and delete parked events.

    It asks first. A dead letter stays in its topic for as long as the topic keeps it. A parked
    event is deleted, and never published.

    Example: dovecote dead drop --part consumer/shipping --until 2026-02-01 --config watch.toml
    """,
)


def _require_meant(chosen: Selection, *, everything: bool) -> None:
    """
    Check that a selection says which letters are meant.

    Raises:
        BadSettings: it selects all, and nobody said that all are meant.
    """
    if everything == chosen.is_narrowed:
        msg = (
            "say which ones: ids, --part, --topic, --key, --id, --type, --reason, --since, "
            "--until, --where, or --all alone"
        )
        raise BadSettings(msg)


def _decide(
    verb: Verb,
    config: Path | None,
    selection: Selection,
    by: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    watch = watched(config)
    chosen, failures = parts.choose(watch, selection)
    _require_found(chosen, selection.ids, failures)
    if dry_run:
        for each in chosen:
            _say(Fate(each.part, each.place, each.id, "left"), f"would {verb}", as_json=as_json)
        typer.echo(f"nothing was done: {_count(chosen)}", err=True)
    elif chosen and (yes or _agreed(verb, chosen)):
        failures += _done(watch, verb, chosen, by or who(), as_json=as_json)
    require_all(failures, as_json=as_json)


def _agreed(verb: Verb, chosen: Sequence[Picked]) -> bool:
    """
    Ask whether these are meant.

    Raises:
        DovecoteError: the answer is no, or there is none.
    """
    typer.echo(f"{_count(chosen)}:", err=True)
    for each in chosen[:_MOST_NAMED]:
        typer.echo(f"  {printed.text(each.part)}  {printed.text(each.id)}", err=True)
    if len(chosen) > _MOST_NAMED:
        typer.echo(f"  and {len(chosen) - _MOST_NAMED:,} more", err=True)
    try:
        if typer.confirm(f"{verb} them?", err=True):
            return True
    except typer.Abort:
        msg = "nobody answered, so nothing was done: give --yes where nobody can answer"
        raise DovecoteError(msg) from None
    msg = "nothing was done"
    raise DovecoteError(msg)


def _done(
    watch: WatchSettings, verb: Verb, chosen: Sequence[Picked], by: str, *, as_json: bool
) -> list[Failure]:
    """
    Do it, and say of each letter what became of it; return the parts that failed.

    Raises:
        DovecoteError: letters stay.
    """
    act = parts.requeue if verb == "requeue" else parts.drop
    failures, counts, why = list[Failure](), Counter[str](), ""
    for each in act(watch, chosen, by=by):
        if isinstance(each, Failure):
            failures.append(each)
            continue
        counts[each.what] += 1
        why = why or each.why
        _say(each, each.what, as_json=as_json)
    told = ", ".join(f"{what} {number:,}" for what, number in sorted(counts.items()))
    typer.echo(told or "nothing was done", err=True)
    if counts["asked"]:
        typer.echo(
            f"the active relay was asked to {verb} {counts['asked']:,}; `dovecote dead list` "
            "shows those that stay parked",
            err=True,
        )
    if counts["left"]:
        require_all(failures, as_json=as_json)
        msg = f"{counts['left']:,} of {len(chosen):,} stay: {printed.text(why)}"
        raise DovecoteError(msg)
    return failures


def _say(fate: Fate, what: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(printed.as_json({**fate._asdict(), "what": what}))
        return
    why = f"  {printed.text(fate.why)}" if fate.why else ""
    named = "  ".join(printed.text(each) for each in (fate.part, fate.place, fate.id))
    typer.echo(f"{what}  {named}{why}")


def _count(chosen: Iterable[Picked]) -> str:
    counts = Counter(each.part for each in chosen)
    total = counts.total()
    parts_ = ", ".join(f"{number:,} of {printed.text(part)}" for part, number in counts.items())
    return f"{total:,} letter{'' if total == 1 else 's'}, {parts_}"


def _require_found(
    chosen: Sequence[Picked], ids: Sequence[str], failures: Sequence[Failure]
) -> None:
    """
    Check that something is meant, and each id that was named.

    Raises:
        DovecoteError: it is not; nothing was done.
    """
    known = {each.id for each in chosen} | {f"{each.id}@{each.source}" for each in chosen}
    missing = [each for each in ids if each not in known]
    if missing and not failures:
        msg = (
            f"no dead letter or parked event with id {', '.join(missing)}; `dovecote dead list` "
            "shows them"
        )
        raise DovecoteError(msg)
    if not chosen and not failures:
        msg = "no such letter; `dovecote dead list` shows them"
        raise DovecoteError(msg)
