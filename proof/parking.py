"""Events that cannot be published: too large ones, and ones for topics that do not exist yet."""

import random
import threading
from uuid import UUID

import psycopg

from outbox import write
from proof.commands import Commands
from proof.crew import Crew
from proof.journal import Journal
from proof.plan import Done
from proof.world import World
from proof.writers import events

SMALL = "proof-small"
_LIMIT, _NO_LIMIT = "2000", "1000000"
_PADDING = 3_000
_KEYS = tuple(f"park-{number}" for number in range(6))
_LARGE, _LATE = 0.1, 0.15
_PACE = 0.3
_MOST_DROPPED = 3
_DROPS = 0.4


class Parker:
    """Writes such events all the time, and treats them like operators do."""

    def __init__(
        self, world: World, dsn: str, *, seed: int, commands: Commands, journal: Journal
    ) -> None:
        self._world, self._dsn, self._commands, self._journal = world, dsn, commands, journal
        self._chance = random.Random(seed)  # noqa: S311  # to be repeated, no secret
        self._late = 0
        self._enough, self._held = threading.Event(), threading.Event()
        self.given_up: set[tuple[str, int]] = set()
        """The events that were to be dropped."""
        self.dropped: set[str] = set()
        """Their ids."""
        world.make_topic(SMALL, 2, max_message_bytes=_LIMIT)

    @property
    def topics(self) -> list[str]:
        """Return all topics of its events."""
        return [SMALL, *(f"proof-late-{number}" for number in range(self._late + 1))]

    def work(self) -> None:
        """Write until told to stop; runs in a thread of its own."""
        while not self._enough.wait(self._chance.random() * 2 * _PACE):
            if self._held.is_set():
                continue
            try:
                with psycopg.connect(self._dsn, connect_timeout=5) as conn:
                    if self._chance.random() < _LATE:
                        late = self._late
                        key = f"l{late}-{self._chance.randrange(3)}"
                        write(conn, *events(conn, key, 2, f"proof-late-{late}"))
                    else:
                        is_large = self._chance.random() < _LARGE
                        padding = _PADDING if is_large else 0
                        key = self._chance.choice(_KEYS)
                        write(conn, *events(conn, key, 1, SMALL, padding=padding))
            except psycopg.OperationalError:
                self._enough.wait(0.1)

    @property
    def writes(self) -> bool:
        """Return whether it was not told to stop."""
        return not self._enough.is_set()

    def stop(self) -> None:
        self._enough.set()

    def hold(self) -> None:
        self._held.set()

    def go_on(self) -> None:
        self._held.clear()

    def disturb(self, crew: Crew, chance: random.Random, done: Done) -> None:
        """Create the missing topic; drop some of what is parked, or requeue all of it."""
        late = self._late
        self._late += 1
        self._world.make_topic(f"proof-late-{late}")
        if chance.random() < _DROPS and (large := self.large(chance)):
            self.given_up |= {_known(each) for each in large}
            self.dropped |= set(large)
            self._each_shard(crew, ["relay", "parked", "drop", *large])
            done.drops += 1
            return
        self._world.alter_topic(SMALL, "max.message.bytes", _NO_LIMIT)
        self._each_shard(crew, ["relay", "parked", "requeue", "--all"])
        self._world.alter_topic(SMALL, "max.message.bytes", _LIMIT)
        done.requeues += 1

    def large(self, chance: random.Random) -> list[str]:
        """Return the ids of some events that are parked because of their size."""
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as conn:
            rows = conn.execute(
                "SELECT id::text FROM outbox.parked WHERE code = 'MSG_SIZE_TOO_LARGE' ORDER BY 1"
            ).fetchall()
        return [row[0] for row in chance.sample(rows, min(_MOST_DROPPED, len(rows)))]

    def command(self, chance: random.Random) -> list[str]:
        """Return a command that may be stopped and woken."""
        if chance.random() < _DROPS and (large := self.large(chance)):
            self.given_up |= {_known(each) for each in large}
            self.dropped |= set(large)
            return ["relay", "parked", "drop", *large]
        return ["relay", "parked", "requeue", "--all"]

    def release(self, crew: Crew) -> int:
        """Remove every obstacle, requeue what is parked, and return how many events that is."""
        for topic in self.topics[1:]:
            self._world.make_topic(topic)
        self._world.alter_topic(SMALL, "max.message.bytes", _NO_LIMIT)
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as conn:
            row = conn.execute("SELECT count(*) FROM outbox.parked").fetchone()
        left = int(row[0]) if row else 0
        if left:
            self._each_shard(crew, ["relay", "parked", "requeue", "--all"])
        return left

    def still_parked(self) -> list[str]:
        """Return one line for each event that is parked, in the order of the stream."""
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as conn:
            rows = conn.execute(
                "SELECT id::text, code, reason, parked_at::text FROM outbox.parked ORDER BY number"
            ).fetchall()
        return [
            f"number {number} of key {key} is parked since {since}: {code}, {reason}"
            for (key, number), code, reason, since in ((_known(row[0]), *row[1:]) for row in rows)
        ]

    def _each_shard(self, crew: Crew, arguments: list[str]) -> None:
        for number in range(crew.shards):
            self._commands.run(
                self._dsn,
                *arguments,
                *("--config", str(crew.config)),
                environment={"DOVECOTE_RELAY_SHARD": str(number)} if crew.shards > 1 else None,
            )


def _known(given: str) -> tuple[str, int]:
    """Return the event whose id `known` has made."""
    number = UUID(given).int
    return (number >> 64).to_bytes(6).lstrip(b"\0").decode(), number & (1 << 64) - 1
