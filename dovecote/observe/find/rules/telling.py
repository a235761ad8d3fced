"""Tell the life of an event from what the parts say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from dedup.retries import copies
from dovecote.observe.find.rules import standing
from dovecote.observe.find.rules.facts import (
    Copy,
    DeadCopy,
    Facts,
    Parked,
    Row,
    Taker,
    moment,
    place_of,
    written_at,
)
from dovecote.observe.find.rules.life import One, Standing, Step, in_order
from dovecote.observe.find.rules.query import shown
from dovecote.observe.rules.counted import counted
from outbox.envelope import Record

_MOST_DETAIL = 300


def one(
    facts: Facts,
    readers: Sequence[Taker],
    topics: Mapping[str, frozenset[str]],
    now: datetime,
) -> One:
    """Return the life of one event; `topics`: what each reader reads, by its name."""
    home = sorted(facts.home, key=lambda each: (each.timestamp, each[:3]))
    rows = [each._replace(published=True) if home else each for each in facts.rows]
    times = [each.at for each in rows] + [
        at for each in home if (at := written_at(each)) is not None
    ]
    times += [each.at for each in facts.parked]
    times += [at for each in facts.letters if (at := written_at(each.record)) is not None]
    return One(
        facts.id,
        facts.source,
        _topic(facts, home),
        _key(facts, home),
        min(times, default=None),
        in_order(_steps(facts, rows, home)),
        _standings(replace(facts, rows=rows, home=home), readers, topics, now),
    )


def _standings(
    facts: Facts,
    readers: Sequence[Taker],
    topics: Mapping[str, frozenset[str]],
    now: datetime,
) -> list[Standing]:
    found: list[Standing] = []
    parked = [each for each in facts.parked if not _came(facts.home, each)]
    aside = {each.part for each in parked}
    found += [standing.of_parked(each) for each in parked]
    found += [standing.of_row(each) for each in facts.rows if each.part not in aside]
    by_reader = [
        each
        for reader in readers
        if (each := standing.of_reader(reader, facts, topics[reader.part], now)) is not None
    ]
    read = frozenset[str]().union(*topics.values())
    newest: dict[str, Record] = {each.topic: each for each in facts.home}
    found += [standing.of_topic(each, read=name in read) for name, each in newest.items()]
    return found + by_reader


def _came(home: Sequence[Record], parked: Parked) -> bool:
    """Return whether a parked event has been published since."""
    times = [written_at(each) for each in home if each.topic == parked.topic]
    return any(at is not None and at > parked.at for at in times)


def _topic(facts: Facts, home: Sequence[Record]) -> str | None:
    known = [each.topic for each in facts.rows] + [each.topic for each in facts.parked]
    known += [each.topic for each in home]
    if known:
        return known[0]
    for letter in facts.letters:
        origin = copies.delivery(letter.record).origin
        return letter.record.topic if origin is None else origin.rsplit("/", 2)[0]
    return None


def _key(facts: Facts, home: Sequence[Record]) -> bytes | None:
    keys = [each.key for each in facts.rows] + [each.key for each in facts.parked]
    keys += [each.key for each in home] + [each.record.key for each in facts.copies]
    keys += [each.record.key for each in facts.letters]
    return next(iter(keys), None)


def _steps(facts: Facts, rows: Sequence[Row], home: Sequence[Record]) -> list[Step]:
    found = [_appended(each) for each in rows]
    found += [_parked(each) for each in facts.parked]
    found += [_published(each) for each in home]
    found += [_copied(each) for each in facts.copies]
    for letter in facts.letters:
        found += _given_up(letter)
    own = {each[:3] for each in home}
    found += [
        Step(written_at(each.record), each.owner, "written", str(place_of(each.record)))
        for each in facts.outputs
        if each.record[:3] not in own
    ]
    for part, lines in facts.handled.items():
        found += [
            Step(
                each.at,
                part,
                "handled",
                f"round {each.round}" if each.round else "as its inbox says",
            )
            for each in lines
        ]
    for part, attempts in facts.attempts.items():
        for each in attempts:
            said = "no answer" if each.status is None else str(each.status)
            detail = f"{each.outcome}: {said} {each.detail[:_MOST_DETAIL]}".rstrip()
            found.append(Step(each.at, part, f"attempt {each.number}", detail))
    return found


def _appended(row: Row) -> Step:
    detail = f"to topic {row.topic}, key {shown(row.key)}, position {row.position:,}"
    return Step(row.at, row.part, "appended", detail)


def _parked(parked: Parked) -> Step:
    what = "held" if parked.code == "BEHIND" else "parked"
    return Step(parked.at, parked.part, what, f"{parked.code}: {parked.reason[:_MOST_DETAIL]}")


def _published(record: Record) -> Step:
    detail = f"{place_of(record)}, key {shown(record.key)}"
    return Step(written_at(record), f"topic/{record.topic}", "published", detail)


def _copied(copy: Copy) -> Step:
    history = copies.delivery(copy.record)
    due = moment(history.not_before)
    detail = f"{place_of(copy.record)}: for attempt {history.attempt}"
    if due is not None:
        detail += f", due at {due.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
    if history.error:
        detail += f": {history.error[:_MOST_DETAIL]}"
    return Step(written_at(copy.record), copy.owner, "put aside", detail)


def _given_up(letter: DeadCopy) -> list[Step]:
    at, place = written_at(letter.record), place_of(letter.record)
    detail = (
        f"{place}: after {counted(letter.attempts, 'attempt')}: {letter.reason[:_MOST_DETAIL]}"
    )
    found = [Step(at, letter.owner, "given up", detail)]
    if letter.fate:
        found.append(Step(letter.fate_at, letter.owner, letter.fate, f"from {place}"))
    return found
