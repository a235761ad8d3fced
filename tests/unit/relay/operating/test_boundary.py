"""A finished change of the number of shards is not undone by a slot that is in use."""

from unittest.mock import Mock

import psycopg
import pytest

from relay.operating import boundary
from relay.rules.sharding import Shard

IN_USE = psycopg.errors.ObjectInUse("replication slot is active for PID 4711")


@pytest.mark.parametrize(("answers", "done"), [([IN_USE, False, True], True), ([IN_USE], False)])
def test_a_slot_that_is_taken_while_it_is_dropped_is_one_in_use(
    answers: list[Exception | bool], *, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "_PATIENCE", 10.0 if done else 0.0)
    monkeypatch.setattr(boundary, "drop_left_slots", Mock(side_effect=answers))
    assert boundary.drop_old_slots(Mock(), "outbox", Shard("shop")) is done
