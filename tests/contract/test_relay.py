"""The relay's promises to writers and readers, on every stack."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fix_stack import MakeTopic, Servers
from tests.support.load import load
from tests.support.relaying import AGREE, Watch, committed, difference, drained, installed, relays
from tests.support.waiting import until

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_killed_under_load_it_publishes_each_committed_event_once_and_in_order(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path, capture: str
) -> None:
    name = topic(3)
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        with closing(Watch(fleet.bootstrap, name)) as watch, load(database, name):
            for goal in (200, 600):
                relay = fleet.active(capture=capture)
                until(lambda goal=goal: watch.records() >= goal, within=30, what="records")  # type: ignore[misc]  # bound early
                relay.kill()
        fleet.active(capture=capture)
        found = drained(fleet, name)
        assert difference(committed(database, name), found) == AGREE
