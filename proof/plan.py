"""What is done to the relay and its servers, and when: a sequence that a seed repeats."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """A kind of disturbance."""

    KILL = "kill"
    """SIGKILL the active relay; a standby takes over, and a new one stands by."""
    PAUSE = "pause"
    """SIGSTOP the active relay until another one has taken over, then let it wake up: a zombie."""
    STALL = "stall"
    """Hold back everything between the active relay and Postgres; connections stay open."""
    CUT = "cut"
    """Break all connections between the active relay and Postgres."""
    UNLOCK = "unlock"
    """End the session that holds the active role; the relay that had it does not know yet."""
    CRASH_POSTGRES = "crash of Postgres"
    """SIGKILL all of Postgres, and start it again."""
    CRASH_KAFKA = "crash of Kafka"
    """SIGKILL the broker, and start it again."""
    PAUSE_KAFKA = "pause of Kafka"
    """SIGSTOP the broker for a while: requests are answered late or not at all."""
    SWITCH = "switch of the capture"
    """Have writers write to the log instead of the table, or the other way round."""


# Of a hundred. A crash of a server takes seconds, a kill of the relay a fraction of one.
_SHARES = {
    Kind.KILL: 77,
    Kind.PAUSE: 5,
    Kind.STALL: 3,
    Kind.CUT: 3,
    Kind.UNLOCK: 8,
    Kind.CRASH_POSTGRES: 1.5,
    Kind.CRASH_KAFKA: 1,
    Kind.PAUSE_KAFKA: 1.5,
    Kind.SWITCH: 8,
}


_EARLY_SECONDS, _LATE_SECONDS = 0.15, 0.6


class Disturbance(NamedTuple):
    """One disturbance."""

    kind: Kind
    wait: float
    """Seconds to wait once a relay is active: from its first steps to the middle of its work."""
    length: float
    """Seconds that it lasts, if it lasts."""


@dataclass(slots=True)
class Done:
    """How much was done."""

    kills: int = 0
    """Relays killed."""
    restarts: int = 0
    """Servers killed and started again."""
    pauses: int = 0
    """Relays and brokers stopped and woken up."""
    stalls: int = 0
    """Times that the network was held back or cut, or a session ended."""
    switches: int = 0
    """Times that writers were sent to the other capture."""


def plan(seed: int, longest_stall: float, *, switches: bool) -> Iterator[Disturbance]:
    """
    Yield disturbances without end.

    Each kind comes once within the first few, so that a short run has seen them all; then by
    chance.
    """
    chance = random.Random(seed)  # noqa: S311  # to be repeated, no secret
    kinds = [kind for kind in Kind if switches or kind is not Kind.SWITCH]
    shares = [_SHARES[kind] for kind in kinds]
    first = [Kind.KILL, *kinds, Kind.KILL]
    while True:
        kind = first.pop(0) if first else chance.choices(kinds, shares)[0]
        # Half of the relays do not get far: what they do first is the most delicate.
        wait = chance.random() * chance.choice([_EARLY_SECONDS, _LATE_SECONDS])
        yield Disturbance(kind, wait, chance.uniform(0.2, longest_stall))
