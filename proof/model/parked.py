"""
Parking in two independent stores, with a crash at each step of either.

The stores are values; the decisions and their order are the relay's own code. Operators repair the
cause of refusals, requeue and drop, as the seed decides.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count, pairwise
from typing import NamedTuple

from proof.model.parked_stores import (
    HERE,
    NAME,
    TOPIC,
    Bug,
    Crash,
    Kafka,
    Kept,
    Postgres,
    Stores,
    event,
)
from relay.errors import Unpublishable
from relay.kafka.publisher import no_more
from relay.metrics import Metrics
from relay.parking import Parking
from relay.postgres.parked import Command
from relay.rules.isolation import Isolation
from relay.rules.pace import Pace
from relay.rules.parking import Policy
from relay.rules.places.progress import Cursor, Progress, at
from relay.rules.row import KEY, Key, Row, key_of
from relay.settings import RelaySettings

_EVENTS, _BATCH, _ROUNDS, _SETTLING = 24, 5, 40, 80
_POISON = 0.2


class Fate(NamedTuple):
    """The faults at the end; empty if all is well."""

    lost: set[int]
    doubled: set[int]
    left: set[int]
    """Events that stay parked for ever."""
    dropped_unseen: set[int]
    undone: set[int]
    """Events of a finished command that are still parked."""
    out_of_order: list[tuple[Key, int, int]]


WELL = Fate(set(), set(), set(), set(), set(), [])


class World:
    """One run of a seed: a relay, its crashes, and operators."""

    def __init__(
        self,
        seed: int,
        policy: Policy = "hold",
        *,
        crash_at: int | None = None,
        bug: Bug | None = None,
    ) -> None:
        self.seed, self._policy = seed, policy
        self._chance = random.Random(seed)  # noqa: S311  # to be repeated, no secret
        self.stores = Stores(self._chance, bug, crash_at)
        self.stores.poison |= {at for at in range(_EVENTS) if self._chance.random() < _POISON}
        self._metrics, self._numbers = Metrics(NAME), count(1)

    def run(self) -> Fate:
        """Relay the stream, with crashes and operators, until nothing is left to do."""
        stores, parking = self.stores, self._relay()
        for turn in range(_ROUNDS + _SETTLING):
            if turn >= _ROUNDS:
                stores.crashes = False
                stores.poison.clear()
                if self._is_done():
                    break
            self._operate(is_settling=turn >= _ROUNDS)
            try:
                self._work(parking)
            except Crash:
                stores.forget()
                parking = self._relay()
        return self._judge()

    def _relay(self) -> Parking:
        self._isolation = Isolation(_BATCH)
        settings = RelaySettings.model_validate(
            {
                "dsn": "host=none",
                "kafka": {"bootstrap.servers": "none"},
                "on_poison": self._policy,
                "batch_rows": _BATCH,
                "park_after": timedelta(0),
            }
        )
        # This clock is always late, so that commands are looked for every time, and take many
        # turns.
        return Parking(
            settings,
            self._metrics,
            (self._isolation, Pace(16_000_000, 60)),
            dict.fromkeys,
            clock=map(float, count(1, 10)).__next__,
            # In some worlds there are too many keys to remember.
            most_held=self.seed % 3,
        )

    def _work(self, parking: Parking) -> None:
        """Take over, publish one batch and obey commands, like the relay's loop."""
        stores = self.stores
        parking.begin(Postgres(stores), stores.progress)
        kafka, done = Kafka(stores, self._isolation.one_by_one), self._place()
        try:
            last = parking.obey(kafka, stores.progress)
            if last is None:
                return
            most = min(done + self._isolation.most, _EVENTS)
            # The number of events to read varies each time.
            end = self._chance.randint(min(done + 1, most), most)
            publish, progress = self._admit(parking, range(done, end), last)

            def more(_: float) -> tuple[Sequence[Row], Progress]:
                behind = range(end, self._chance.randint(end, most))
                return self._admit(parking, behind, progress)

            if end > done:
                kafka.publish(publish, progress, more if publish else no_more)
            stores.catch_up()
            self._isolation.has_changed()
        except Unpublishable as error:
            parking.learn(error)

    def _admit(
        self, parking: Parking, positions: range, last: Progress
    ) -> tuple[Sequence[Row], Progress]:
        admitted = parking.admit([event(n, self.stores.bug) for n in positions])
        publish, parked = admitted.rows, admitted.number
        cursor = Cursor(position=positions.stop)
        return publish, at(NAME, HERE, cursor, last=last, parked=parked)

    def _place(self) -> int:
        cursor = self.stores.progress.cursor
        return cursor.position if isinstance(cursor, Cursor) else 0

    def _is_done(self) -> bool:
        return self._place() == _EVENTS and not (self.stores.kept or self.stores.commands)

    def _operate(self, *, is_settling: bool) -> None:
        """Act as an operator: repair, requeue or drop; in the end, requeue all that is left."""
        stores, chance = self.stores, self._chance
        if not stores.kept or (is_settling and stores.commands):
            return
        number = chance.choice(sorted(stores.kept))
        kept = stores.kept[number]
        if is_settling:
            self._ask("requeue", number, kept)
        elif chance.random() < 0.5:  # noqa: PLR2004  # a share of the turns
            if chance.random() < 0.5:  # noqa: PLR2004  # some are requeued too early
                stores.poison.discard(kept.place)
            self._ask(chance.choice(["requeue", "requeue", "drop"]), number, kept)

    def _ask(self, action: str, number: int, kept: Kept) -> None:
        key = kept.parked.row[KEY] if kept.parked.holds else None
        # All events of a held key go together; others go alone, or with all of their topic.
        alone = self._chance.random() < 0.5 and (action == "drop" or key is None)  # noqa: PLR2004  # half of them
        name = number if self.stores.bug is Bug.NAMES_NUMBERS else kept.ticket
        command = Command(
            next(self._numbers),
            action,
            None if alone else TOPIC,
            None if alone else key,
            name if alone else None,
        )
        self.stores.ask(command)

    def _judge(self) -> Fate:
        stores = self.stores
        seen = set(stores.published)
        twice = {each for each in seen if stores.published.count(each) > 1}
        disorder = [
            (key, before, after)
            for key in {key_of(event(each)) for each in seen}
            if key[1] is not None and self._policy == "hold"
            for before, after in _neighbours(stores.published, key)
            if after < before
        ]
        return Fate(
            lost=set(range(_EVENTS)) - seen - stores.dropped,
            doubled=twice | (seen & stores.dropped),
            left={kept.place for kept in stores.kept.values()},
            dropped_unseen=stores.dropped_unseen,
            undone=stores.undone,
            out_of_order=disorder,
        )


def _neighbours(published: Sequence[int], key: Key) -> Iterator[tuple[int, int]]:
    return pairwise(each for each in published if key_of(event(each)) == key)
