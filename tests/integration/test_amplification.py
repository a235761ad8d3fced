"""A loop with a fifth of its sends in doubt multiplies events without ids, and only those."""

from pathlib import Path

import pytest

from benchmarks.amplification import Round, loop
from dovecote.devstack import Stack
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import installed, relays

EVENTS, ROUNDS = 10, 3


@pytest.mark.parametrize("ids", [True, False])
def test_copies_that_carry_the_id_are_not_multiplied_and_others_are(
    stack: Stack, database: str, topic: MakeTopic, tmp_path: Path, *, ids: bool
) -> None:
    dsn, name = installed(database), topic(2)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        fleet.active(poll_max="5ms")
        made = loop(stack.kafka.bootstrap, dsn, name, ids=ids, events=EVENTS, rounds=ROUNDS)
        rounds: list[Round] = list(made)
    assert sum(each.ambiguous for each in rounds) > 0
    # Each event that was in doubt is there twice.
    assert [each.records for each in rounds] == [each.sent + each.ambiguous for each in rounds]
    handled = [each.handled for each in rounds]
    if ids:
        assert handled == [EVENTS] * (ROUNDS + 1)
    else:
        assert handled == [each.records for each in rounds]
        assert handled[-1] > EVENTS
