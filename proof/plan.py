"""The disturbances of the relay and its servers, as a sequence that a seed repeats."""

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """A kind of disturbance."""

    KILL = "kill"
    """SIGKILL the active relay; a standby takes over, and a new one stands by."""
    PAUSE = "pause"
    """SIGSTOP the active relay until another one has taken over, then wake it up: a zombie."""
    STALL = "stall"
    """Hold back everything between the active relay and Postgres; connections stay open."""
    CUT = "cut"
    """Break all connections between the active relay and Postgres."""
    UNLOCK = "unlock"
    """End the session that holds the active role; its relay does not know yet."""
    SLOW = "slow link"
    """Let little through between the active relay and Postgres, or between all and a broker."""
    PARK = "parked events"
    """
    Create a missing topic, let large events pass, requeue what is parked, or drop some of it.
    """
    CRASH_POSTGRES = "crash of Postgres"
    """SIGKILL all of Postgres, and start it again."""
    CRASH_KAFKA = "crash of Kafka"
    """SIGKILL a broker, kill a relay meanwhile, and start the broker again."""
    PAUSE_KAFKA = "pause of Kafka"
    """SIGSTOP a broker for a while: requests are answered late or not at all."""
    WOKEN = "woken command"
    """SIGSTOP an operator's command, end its session, run a rival, and wake it up."""
    SWITCH = "switch of the capture"
    """Make writers write to the log instead of the table, or the other way round."""
    ISOLATE = "broker without peers"
    """Cut a broker off from its peers but not from clients, and kill relays meanwhile."""
    CUT_OFF = "broker cut off"
    """Cut a broker off from its peers and from clients, and kill relays meanwhile."""
    LEADERS = "leaders moved"
    """Move each partition to its preferred leader."""
    ROLL = "rolling restart"
    """Restart all brokers, one after the other."""
    PROMOTE = "promotion"
    """Promote the synchronous standby, after the end of the primary or beside it."""
    SNAPSHOT = "snapshot put back"
    """Restore an earlier copy of the primary's files, and accept the loss."""


_EARLY_SECONDS, _LATE_SECONDS = 0.15, 0.6

# The number of each kind in a round, whose order is random. A crash of a server takes seconds, a
# kill of the relay a fraction of a second.
ONE_BROKER: Mapping[Kind, int] = {
    Kind.KILL: 77,
    Kind.PAUSE: 5,
    Kind.STALL: 3,
    Kind.CUT: 3,
    Kind.UNLOCK: 8,
    Kind.SLOW: 1,
    Kind.PARK: 4,
    Kind.CRASH_POSTGRES: 2,
    Kind.CRASH_KAFKA: 1,
    Kind.PAUSE_KAFKA: 1,
    Kind.WOKEN: 2,
    Kind.SWITCH: 8,
}
THREE_BROKERS: Mapping[Kind, int] = {
    Kind.KILL: 42,
    Kind.PAUSE: 1,
    Kind.STALL: 1,
    Kind.CUT: 2,
    Kind.UNLOCK: 3,
    Kind.SLOW: 1,
    Kind.PARK: 2,
    Kind.CRASH_POSTGRES: 1,
    Kind.CRASH_KAFKA: 2,
    Kind.PAUSE_KAFKA: 1,
    Kind.WOKEN: 3,
    Kind.SWITCH: 4,
    Kind.ISOLATE: 3,
    Kind.CUT_OFF: 1,
    Kind.LEADERS: 2,
    Kind.ROLL: 1,
    Kind.PROMOTE: 1,
    Kind.SNAPSHOT: 1,
}


class Disturbance(NamedTuple):
    """One disturbance."""

    kind: Kind
    wait: float
    """Seconds to wait once a relay is active: from its first steps to the middle of its work."""
    length: float
    """Its duration in seconds, if it has one."""
    seed: int
    """The seed of its choices."""

    def chance(self) -> random.Random:
        """Return the random numbers for its choices, the same each time."""
        return random.Random(self.seed)  # noqa: S311  # to be repeated, no secret


@dataclass(slots=True)
class Done:
    """The number of disturbances that were done."""

    kills: int = 0
    """Relays killed."""
    restarts: int = 0
    """Servers killed and started again."""
    pauses: int = 0
    """Relays and brokers stopped and woken up."""
    stalls: int = 0
    """Times that the network was held back, slow or cut, or a session was ended."""
    switches: int = 0
    """Times that writers were sent to the other capture."""
    isolations: int = 0
    """Brokers cut off while they ran."""
    broker_deaths: int = 0
    """Brokers killed."""
    leaders_moved: int = 0
    rolls: int = 0
    """Times that all brokers were restarted, one after the other."""
    promotions: int = 0
    splits: int = 0
    """Promotions beside a primary that went on."""
    snapshots: int = 0
    """Servers restored from a snapshot."""
    woken: int = 0
    """Commands that were stopped, and woken after a rival."""
    requeues: int = 0
    drops: int = 0
    restarted: int = 0
    """Relays that ended by themselves and were started again."""
    by_kind: Counter[str] = field(default_factory=Counter)


def plan(
    seed: int,
    longest_stall: float,
    *,
    shares: Mapping[Kind, int] = ONE_BROKER,
    without: Collection[Kind] = (Kind.SWITCH,),
) -> Iterator[Disturbance]:
    """
    Yield disturbances without end.

    Each kind comes once within the first few, so that a short run has seen them all. Then they
    come in rounds with the numbers in `shares`, in random order.
    """
    chance = random.Random(seed)  # noqa: S311  # to be repeated, no secret
    round_ = [kind for kind in Kind if kind not in without for _ in range(shares.get(kind, 0))]
    # The rare kinds take long; the quick ones show first that anything works.
    coming = [Kind.KILL, *dict.fromkeys(round_), Kind.KILL]
    while True:
        for kind in coming:
            # Half of the relays do not get far, because their first steps are the most delicate.
            wait = chance.random() * chance.choice([_EARLY_SECONDS, _LATE_SECONDS])
            length = chance.uniform(0.2, longest_stall)
            yield Disturbance(kind, wait, length, chance.getrandbits(32))
        coming = list(round_)
        chance.shuffle(coming)


def wanted(kills: int, shares: Mapping[Kind, int], without: Collection[Kind]) -> dict[Kind, int]:
    """Return how many of each rarer kind belong to this many kills of relays."""
    per_round = 50 if shares is THREE_BROKERS else shares[Kind.KILL]
    return {
        kind: share * kills // per_round
        for kind, share in shares.items()
        if kind is not Kind.KILL and kind not in without
    }
