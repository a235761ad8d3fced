"""The active role goes to another relay when its holder is stopped, wherever that happens."""

import threading
from contextlib import suppress

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proof.proxy import Proxy
from relay.postgres.lease import role_of, try_acquire, try_lock
from relay.postgres.parked import ParkedStore
from tests.support.parking import poison
from tests.support.relaying import installed
from tests.support.waiting import patient, until

KEY = role_of("outbox", "shop")
LEASE = 1.0


@pytest.mark.parametrize("sent", [1, 8_192, 16_384, 24_576, 40_960, 57_344])
def test_whoever_is_stopped_in_the_middle_of_a_request_loses_the_role(
    database: str, sent: int
) -> None:
    """
    libpq sends long messages in parts of 8 KiB, so a process may be stopped between two of them.
    """
    server = conninfo_to_dict(installed(database))
    with Proxy((str(server["host"]), int(str(server["port"])))) as network:
        dsn = make_conninfo(database, host="127.0.0.1", port=network.port)
        with suppress(psycopg.OperationalError), try_acquire(dsn, [KEY], LEASE) as lease:
            assert lease is not None
            store = ParkedStore(lease.conn, "outbox", "shop")
            network.stall_after(sent)

            def park() -> None:
                with suppress(psycopg.OperationalError):  # its session has ended
                    store.park(poison(100), 1)

            parking = threading.Thread(target=park)
            parking.start()
            try:
                with psycopg.connect(database, autocommit=True) as other:
                    until(
                        lambda: try_lock(other, KEY),
                        within=LEASE + patient(5),
                        what="the role is free",
                        promised=True,
                    )
                    found = other.execute("SELECT count(*) FROM outbox.parked").fetchone()
                    assert found == (0,)
            finally:
                network.cut()
                parking.join(patient(10))
