"""List, show, requeue and drop the letters of all parts."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from dedup.retries.where import holds
from dedup.rules.identity import Identity
from dovecote.observe.dead.order import Before, decoded, encoded, order
from dovecote.observe.dead.parked import ParkedPart
from dovecote.observe.dead.part import Part, Picked, Verb
from dovecote.observe.dead.pushed import PushPart, is_meant
from dovecote.observe.dead.shapes import (
    Failure,
    Fate,
    Letter,
    Looked,
    Page,
    Ref,
    Selection,
)
from dovecote.observe.dead.topics import of_consumer, of_spark
from dovecote.observe.sources import WatchSettings
from outbox.errors import BadSettings, DovecoteError

MOST_CHOSEN = 500_000
"""The most letters that one call requeues or drops: their names are in memory together."""

_AT_ONCE = 8
_SHOWN = 20

_log = logging.getLogger("dovecote.dead")


def letters(
    watch: WatchSettings, selection: Selection, limit: int = 50
) -> Iterator[Letter | Failure]:
    """
    Yield at most `limit` letters, newest first, then the parts that could not be asked.

    Raises:
        BadSettings: a part is unknown, or `where` is no expression.
    """
    found = page(watch, selection, limit)
    yield from found.letters
    yield from found.failures


def page(
    watch: WatchSettings, selection: Selection, limit: int = 50, after: str | None = None
) -> Page:
    """
    Return at most `limit` letters, newest first; `after` is the `next` of the page before.

    Raises:
        BadSettings: a part is unknown, `where` is no expression, or `after` is from elsewhere.
    """
    before = None if after is None else decoded(after)
    parts = _meant(watch, selection)
    # A part that is away takes its time, and the others need not wait for it in turn.
    with ThreadPoolExecutor(_AT_ONCE, "dead") as pool:
        told = list(pool.map(lambda each: _asked(each, selection, limit, before), parts))
    every = [each for some in told for each in some]
    found = sorted((each for each in every if isinstance(each, Letter)), key=order, reverse=True)
    shown = found[:limit]
    more = len(found) > limit or len(shown) == limit
    return Page(
        shown,
        [each for each in every if isinstance(each, Failure)],
        [each for each in every if isinstance(each, Looked)],
        encoded(shown[-1]) if more and shown else None,
    )


def show(watch: WatchSettings, ref: Ref) -> Letter:
    """
    Return one letter whole.

    Raises:
        BadSettings: its part is unknown.
        DovecoteError: its part cannot be asked, or has it no longer.
    """
    return _of(watch, ref.part).show(*ref)


def requeue(
    watch: WatchSettings, what: Selection | Iterable[Letter | Ref | Picked], *, by: str
) -> Iterator[Fate | Failure]:
    """
    Have letters handled, delivered or published again; yield what became of each.

    `by` names the person: a dead-letter topic keeps it. Everything that was yielded stays done,
    whatever comes after it. The letters of a key keep their order within a part.

    Raises:
        BadSettings: a part is unknown, or `where` is no expression; nothing was done.
    """
    return _resolve(watch, "requeue", what, by)


def drop(
    watch: WatchSettings, what: Selection | Iterable[Letter | Ref | Picked], *, by: str
) -> Iterator[Fate | Failure]:
    """Give letters up; yield what became of each, as `requeue` does, and raise what it raises."""
    return _resolve(watch, "drop", what, by)


def choose(watch: WatchSettings, selection: Selection) -> tuple[list[Picked], list[Failure]]:
    """
    Return the names of all letters that are meant, and the parts that could not be asked.

    Raises:
        BadSettings: a part is unknown, `where` is no expression, an id is that of several events,
            or too many letters are meant.
    """
    found: list[Picked] = []
    failures: list[Failure] = []
    for part in _meant(watch, selection):
        try:
            found += islice(part.all(selection), MOST_CHOSEN + 1 - len(found))
        except DovecoteError as error:
            failures.append(Failure(part.name, str(error)))
        if len(found) > MOST_CHOSEN:
            msg = (
                f"more than {MOST_CHOSEN:,} letters are meant: name fewer, by --part, --since or "
                "--until"
            )
            raise BadSettings(msg)
    _require_one_source(found, selection.ids)
    return found, failures


def _resolve(
    watch: WatchSettings, verb: Verb, what: Selection | Iterable[Letter | Ref | Picked], by: str
) -> Iterator[Fate | Failure]:
    if isinstance(what, Selection):
        found, failures = choose(watch, what)
        yield from failures
    else:
        found = [_chosen(each) for each in what]
    parts: dict[str, tuple[Part, list[Picked]]] = {}
    for each in found:
        part = _of(watch, each.part)
        parts.setdefault(part.name, (part, []))[1].append(each)
    for name, (part, some) in parts.items():
        try:
            for fate in part.resolve(verb, some, by):
                _log.info("%s: %s %s of %s", by, fate.what, fate.place, fate.part)
                yield fate
        except DovecoteError as error:
            yield Failure(name, str(error))


def _chosen(given: Letter | Ref | Picked) -> Picked:
    match given:
        case Picked():
            return given
        case Letter():
            return Picked(given.part, given.place, given.id, given.source)
        case _:
            return Picked(given.part, given.place, "", "")


def _asked(
    part: Part, selection: Selection, most: int, before: Before | None
) -> list[Letter | Looked | Failure]:
    found: list[Letter | Looked | Failure] = []
    try:
        found.extend(part.newest(selection, most, before))
    except DovecoteError as error:
        found.append(Failure(part.name, str(error)))
    return found


def _parts(watch: WatchSettings) -> list[Part]:
    """Return all parts that give something up."""
    named = watch.sources
    return [
        *(ParkedPart(f"outbox/{name}", each) for name, each in named.outbox.items()),
        *(of_consumer(f"consumer/{name}", each) for name, each in named.consumer.items()),
        *(of_spark(f"spark/{name}", each) for name, each in named.spark.items()),
        *(PushPart(f"push/{name}", each) for name, each in named.push.items()),
    ]


def _meant(watch: WatchSettings, selection: Selection) -> Sequence[Part]:
    """
    Return the parts that a selection names.

    Raises:
        BadSettings: it names one that is not there, or its `where` is no expression.
    """
    if selection.where is not None:
        holds(selection.where)
    every = _parts(watch)
    for each in selection.parts:
        if not any(_concerns(part, each) for part in every):
            raise BadSettings(_unknown(each, every))
    named = selection.parts
    return [part for part in every if not named or any(_concerns(part, each) for each in named)]


def _of(watch: WatchSettings, name: str) -> Part:
    """Return the part that has a letter."""
    every = _parts(watch)
    for part in every:
        if name == part.name or (isinstance(part, PushPart) and is_meant(name, [part.name])):
            return part
    raise BadSettings(_unknown(name, every))


def _concerns(part: Part, named: str) -> bool:
    """Return whether a name is that of a part, of its kind, or of a subscription of it."""
    of_subscription = isinstance(part, PushPart) and is_meant(named, [part.name])
    return is_meant(part.name, [named]) or of_subscription


def _unknown(name: str, every: Sequence[Part]) -> str:
    names = [part.name for part in every]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    known = ", ".join(names[:_SHOWN]) + more or "none: its [sources] are empty"
    return f"no part {name!r} in the settings; there is {known}"


def _require_one_source(found: Sequence[Picked], ids: Sequence[str]) -> None:
    """Check that each of the ids that an operator named is the id of one event."""
    for id_ in ids:
        names = {Identity(each.source, each.id).name for each in found if each.id == id_}
        if len(names) > 1:
            msg = (
                f"{id_!r} is an id of several sources; name the event: {', '.join(sorted(names))}"
            )
            raise BadSettings(msg)
