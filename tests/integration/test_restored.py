"""A database that is restored to an earlier state is refused until its loss is accepted."""

from pathlib import Path

import pytest

from tests.support.commands import doctor
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import fill, installed, on_kafka, published, relays
from tests.support.restoring import Volume

PUT_BACK = "put back to an earlier state"


@pytest.mark.parametrize("first", ["writers", "relay"])
@pytest.mark.parametrize("capture", ["table", "wal"])
def test_it_is_refused_however_often_a_supervisor_starts_the_relay(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume, capture: str, first: str
) -> None:
    name, dsn = topic(1), installed(files.dsn, capture)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active()
        fill(dsn, name, 20)
        published(fleet, name, 20)
        copy = files.snapshot()
        fill(dsn, name, 300, first=20)
        published(fleet, name, 320)
        assert relay.terminate() == 0
        files.put_back(copy)
        before = on_kafka(fleet, name)
        if first == "relay":
            assert fleet.start().wait() == 1
        # Until their numbers are beyond the published ones.
        for part in range(4):
            fill(dsn, name, 150, first=1000 * (part + 1))
            relay = fleet.start()
            assert relay.wait() == 1
        assert PUT_BACK in relay.log
        assert "dovecote relay reconcile" in relay.log
        if capture == "wal":
            # Only a reader of the slot sees the end of the log.
            return
        found = doctor(fleet)
        assert found.returncode == 1
        assert "fail  this database was put back to an earlier state: progress of" in found.stdout
        assert "goes on with `--accept-restored`" in found.stdout
        assert on_kafka(fleet, name) == before
