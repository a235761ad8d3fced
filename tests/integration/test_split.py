"""One address, two servers: a relay writes where it reads, or it gives up."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proof.proxy import Proxy
from relay.errors import LeaseLost
from relay.postgres.capture.replication import Stream
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.timeline import shared
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import Cursor, LogPosition
from tests.support.failover import LOGGED, Pair, paired, place_of, until_received
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import commit, event, ids, published, relays
from tests.support.waiting import until

FORBIDDEN = "not-among-the-topics"
DIFFERENT = "are at different servers"


class Split(NamedTuple):
    """A running primary, the standby promoted beside it, and the address of one of them."""

    pair: Pair
    balancer: Proxy
    dbname: str

    @property
    def dsn(self) -> str:
        """Leads to the server that the balancer has chosen."""
        port = self.balancer.port
        return make_conninfo(
            self.pair.primary.dsn, host="127.0.0.1", port=port, dbname=self.dbname
        )

    @property
    def old(self) -> str:
        return make_conninfo(self.pair.primary.dsn, dbname=self.dbname)

    @property
    def new(self) -> str:
        return make_conninfo(self.pair.standby.dsn, dbname=self.dbname)

    def fail_over(self) -> None:
        """Promote the standby, and lead all new connections to it."""
        until_received(self.pair)
        with psycopg.connect(self.pair.standby.dsn, autocommit=True) as conn:
            assert conn.execute("SELECT pg_promote(true, 30)").fetchone() == (True,)
        self.balancer.target = place_of(self.pair.standby.dsn)


@contextmanager
def split(dbname: str) -> Iterator[Split]:
    with paired() as pair, Proxy(place_of(pair.primary.dsn)) as balancer:
        yield Split(pair, balancer, dbname)


def end(dsn: str, *purposes: str) -> None:
    """End sessions of the relay, by their purposes."""
    names = [f"dovecote relay ({purpose})" for purpose in purposes]
    with psycopg.connect(dsn, autocommit=True) as conn:
        ended = conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = ANY (%s) AND datname = current_database()",
            [names],
        ).fetchall()
    assert len(ended) >= len(purposes), f"no session of the relay is there for {purposes}"


def parked(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT id::text FROM outbox.parked ORDER BY number").fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize("moved", ["read", "lease"])
def test_what_is_parked_after_a_failover_is_at_the_server_that_is_read(
    stack: Servers, topic: MakeTopic, tmp_path: Path, moved: str
) -> None:
    name = topic(1)
    with (
        split("postgres") as servers,
        relays(tmp_path, servers.dsn, stack.kafka.bootstrap) as fleet,
    ):
        relay = fleet.active(topics=[name], lease="10s")
        good, bad = event(name, 0), event(FORBIDDEN, 0)
        commit(servers.old, good, bad)
        published(fleet, name, 1)
        until(lambda: parked(servers.old) == [bad.id], within=20, what="a parked event")
        servers.fail_over()
        end(servers.old, moved)
        late, refused = event(name, 1), event(FORBIDDEN, 1)
        commit(servers.new, late, refused)
        until(
            lambda: set(parked(servers.new)) | set(parked(servers.old)) >= {refused.id},
            within=60,
            what="the event parked somewhere",
        )
        assert parked(servers.new) == [bad.id, refused.id], relay.log
        assert ids(published(fleet, name, 2)) == [good.id, late.id]
        # Without its lease it begins with new sessions throughout.
        assert (DIFFERENT in relay.log) == (moved == "read")


def test_a_relay_of_the_log_reads_nowhere_else_than_where_its_role_is(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(1)
    with split(LOGGED) as servers, relays(tmp_path, servers.dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active(lease="10s")
        commit(servers.old, event(name, 0))
        published(fleet, name, 1)
        servers.fail_over()
        end(servers.old, "read")
        relay.until_logged(DIFFERENT)
        # With all sessions at the new server, it finds what is missing there.
        assert relay.wait() == 1
        assert "is missing: it was dropped, or a standby that did not have it was pro" in relay.log


def test_slot_stream_and_history_are_asked_for_at_the_server_that_is_read() -> None:
    with split(LOGGED) as servers:
        timing = Timing(10.0, 60.0)
        with closing(
            SwitchingCapture(
                servers.dsn, "outbox", batch_rows=10, batch_bytes=1_000, timing=timing
            )
        ) as capture:
            place, here = capture.resume(None), capture.origin().instance
            assert isinstance(place, Cursor)
            place = LogPosition(parse_lsn(capture.origin().lsn))
            servers.fail_over()
            with pytest.raises(LeaseLost, match=f"looks for the slot {DIFFERENT}"):
                list(capture.batches(place))
            with pytest.raises(LeaseLost, match=f"the history of the server {DIFFERENT}"):
                shared(servers.dsn, old=1, new=2, at=here)
        with closing(Stream(servers.dsn, timeout=10.0)) as stream:
            assert stream.instance() != here
            assert stream.instance().system_identifier == here.system_identifier
