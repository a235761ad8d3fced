"""Compare all contracts of a service: which entry reads which records, and what that breaks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dovecote.contracts.rules.change import Change, Compatibility, Verdict, both, fine
from dovecote.contracts.rules.comparing import compare
from dovecote.contracts.rules.contract import Contract, place

_EVENT = "event"
_Name: TypeAlias = tuple[str, str]
_Pair: TypeAlias = tuple[tuple[str, str, int], tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class Found:
    """A change of one contract."""

    name: str
    """`orders/OrderPlaced v2`."""
    topic: str
    change: Change


def reader(record: Contract, readers: Sequence[Contract]) -> Contract | None:
    """
    Return the contract whose class a handler takes for a record, as handlers choose it.

    `readers` have the topic and the type of the record: that of the same version, then one without
    a version, then the only one there is.
    """
    exact = [each for each in readers if each.version == record.version is not None]
    plain = [each for each in readers if each.version is None]
    fitting = exact or plain or (list(readers) if len(readers) == 1 else [])
    return fitting[0] if fitting else None


def compare_all(old: Iterable[Contract], new: Iterable[Contract]) -> list[Found]:
    """Return the changes of all contracts, by topic, type and version."""
    olds, news = _named(old), _named(new)
    moved = _moved(olds, news)
    taken = {each for pair in moved.items() for each in pair}
    found: list[Found] = []
    for was, is_ in sorted(moved.items()):
        found += _topic_changed(olds[was], news[is_])
    topics = {topic for topic, _ in olds}
    for name in sorted({*olds, *news} - taken):
        found += _same_name(olds.get(name, []), news.get(name, []), is_read=name[0] in topics)
    return found


def wanted_of(
    topic: str, default: Compatibility, topics: Mapping[str, Compatibility]
) -> Compatibility:
    """Return whom no change of a topic may break."""
    return topics.get(topic, default)


def _named(given: Iterable[Contract]) -> dict[_Name, list[Contract]]:
    found: dict[_Name, list[Contract]] = {}
    for each in sorted(given, key=place):
        found.setdefault((each.topic, each.type), []).append(each)
    return found


def _moved(
    olds: Mapping[_Name, list[Contract]], news: Mapping[_Name, list[Contract]]
) -> dict[_Name, _Name]:
    """Return the types that have left one topic for one other."""
    gone, come = (
        [name for name in one if name not in other] for one, other in ((olds, news), (news, olds))
    )
    found = {}
    for was in gone:
        to = [each for each in come if each[1] == was[1]]
        if len(to) == 1 and sum(each[1] == was[1] for each in gone) == 1:
            found[was] = to[0]
    return found


def _topic_changed(olds: list[Contract], news: list[Contract]) -> Iterator[Found]:
    here, there = olds[0].topic, news[0].topic
    change = both(
        _EVENT,
        f"its topic was {here}, and is {there}",
        f"readers of {here} get no more events, and {there} lacks the old ones",
    )
    yield Found(f"{here}/{olds[0].type}", here, change)
    moved = [replace(each, topic=here) for each in news]
    yield from _same_name(olds, moved, is_read=True)


def _same_name(olds: list[Contract], news: list[Contract], *, is_read: bool) -> Iterator[Found]:
    """Yield what has changed of one type of a topic; `is_read`: the topic had events before."""
    if not olds or not news:
        for each in olds:
            yield Found(each.name, each.topic, _removed(each, "the type is removed"))
        for each in news:
            yield Found(each.name, each.topic, _new_type(each, is_read=is_read))
        return
    versions = {each.version for each in olds}, {each.version for each in news}
    backward = {
        (place(each), place(to)): (each, to) for each in olds if (to := reader(each, news))
    }
    forward = {(place(to), place(each)): (to, each) for each in news if (to := reader(each, olds))}
    for each in olds:
        if each.version not in versions[1]:
            what = "the version is removed"
            can = reader(each, news) is not None
            yield Found(each.name, each.topic, fine(_EVENT, what) if can else _removed(each, what))
    for each in news:
        if each.version not in versions[0]:
            can = reader(each, olds) is not None
            yield Found(each.name, each.topic, _new_version(can=can))
    yield from _pairs(backward, forward)


def _pairs(
    backward: Mapping[_Pair, tuple[Contract, Contract]],
    forward: Mapping[_Pair, tuple[Contract, Contract]],
) -> Iterator[Found]:
    for pair, (old, new) in sorted({**backward, **forward}.items()):
        name = old.name if old.version == new.version else f"{old.name} to {new.name}"
        for change in [*_envelope(old, new), *compare(old.schema, new.schema)]:
            # A version that no reader takes for another one breaks none in that direction.
            judged = replace(
                change,
                backward=change.backward if pair in backward else Verdict.FINE,
                forward=change.forward if pair in forward else Verdict.FINE,
            )
            yield Found(name, old.topic, judged)


def _envelope(old: Contract, new: Contract) -> Iterator[Change]:
    if old.key != new.key:
        yield both(
            _EVENT,
            f"its key was {_said(old.key)}, and is {_said(new.key)}",
            "old and new events of one thing lie on different partitions: their order and "
            "deduplication by key end",
        )
    for what, was, is_ in (
        ("subject", old.subject, new.subject),
        ("source", old.source, new.source),
        ("dataschema", old.dataschema, new.dataschema),
    ):
        if was != is_:
            yield fine(_EVENT, f"its {what} was {_said(was)}, and is {_said(is_)}")


def _removed(each: Contract, what: str) -> Change:
    why = f"no class takes the old records of {each.name}: they become dead letters"
    return Change(_EVENT, what, Verdict.BREAKS, Verdict.FINE, why)


def _new_type(each: Contract, *, is_read: bool) -> Change:
    what = "the type is added"
    if not is_read:
        return fine(_EVENT, f"{what}, and its topic is new")
    why = (
        f"old readers of {each.topic} do not know it, and give its records up unless they filter "
        "by type or take any `Event`"
    )
    return Change(_EVENT, what, Verdict.FINE, Verdict.BREAKS, why)


def _new_version(*, can: bool) -> Change:
    what = "the version is added"
    if can:
        return fine(_EVENT, what)
    why = "old readers have several versions, and none of them is this one"
    return Change(_EVENT, what, Verdict.FINE, Verdict.BREAKS, why)


def _said(given: str | None) -> str:
    return "none" if given is None else given
