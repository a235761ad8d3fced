"""Compare what a world has published with the final contents of its database."""

from collections import Counter

from proof.count import Seen, Verdict, judge
from proof.model.postgres import Row
from proof.model.world import EVENTS, PROGRESS, Progress, World


def judged(world: World) -> Verdict:
    """
    Compare with the database's final contents, and with what its earlier states had published.

    An event counts as given up only if operators were told of it.
    """
    database, published = world.database, _published(world)
    keys = {row.id: row.key for row in published}
    kept = {row.id: row.key for row in [*database.committed(), *database.past]}
    aside = _given_up(world) | (database.parked - keys.keys())
    numbers: Counter[str] = Counter()
    number_of: dict[int, int] = {}
    for id_, key in sorted((kept | keys).items()):
        if id_ not in aside:
            number_of[id_] = numbers[key]
            numbers[key] += 1
    return judge(numbers, [Seen(row.key, number_of.get(row.id, -1)) for row in published])


def is_behind(world: World) -> bool:
    """Return whether anything is still to be done."""
    if any(wire.queue for wire in world.wires):
        return True
    done = {*(row.id for row in _published(world)), *_given_up(world), *world.database.parked}
    return any(row.id not in done for row in world.database.committed())


def _published(world: World) -> list[Row]:
    return [each for each in world.broker.committed(EVENTS) if isinstance(each, Row)]


def _given_up(world: World) -> set[int]:
    found = [each for each in world.broker.committed(PROGRESS) if isinstance(each, Progress)]
    return {id_ for each in found for id_ in each.given_up}
