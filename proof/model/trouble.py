"""The troubles that may happen at a step, and how often."""

import random
from collections.abc import Mapping
from enum import StrEnum


class Trouble(StrEnum):
    """An event that may happen at a step of a relay or a command."""

    CRASH = "ended here, and started anew"
    DELAY = "delayed here, while others go on"
    HELD_BACK = "what it has sent is held back here"
    LOST_ROLE = "lost the active role here, without knowing"
    SERVER_CRASH = "Postgres crashed here"
    FAILOVER = "another Postgres was promoted here"
    PUT_BACK = "Postgres was put back to a snapshot of its volume here"
    CUT_OFF = "the leader of the progress topic was cut off here"


LOSSES = frozenset({Trouble.FAILOVER, Trouble.PUT_BACK})
"""Troubles after which a server may lack what it had."""

_CHANCES = {
    Trouble.CRASH: 0.02,
    Trouble.DELAY: 0.05,
    Trouble.HELD_BACK: 0.03,
    Trouble.LOST_ROLE: 0.03,
    Trouble.SERVER_CRASH: 0.005,
    Trouble.FAILOVER: 0.012,
    Trouble.PUT_BACK: 0.02,
    Trouble.CUT_OFF: 0.06,
}
_MOST_KINDS = 5


def chances(chance: random.Random, *, without: frozenset[Trouble]) -> Mapping[Trouble, float]:
    """
    Return the troubles of a world, and the likelihood of each at a step.

    A world with few kinds of trouble has more of each, and explores them further.
    """
    possible = [each for each in Trouble if each not in without]
    kinds = chance.sample(possible, chance.randint(1, _MOST_KINDS))
    return {each: _CHANCES[each] * _MOST_KINDS / len(kinds) for each in kinds}
