"""A client certificate that is just being renewed is an outage for a relay, and ends nothing."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from outbox.errors import NoClient
from relay.health import Health
from relay.metrics import Metrics
from relay.operating.doctor import examine
from relay.operating.status import status
from relay.postgres.lease import role_of, try_acquire
from relay.settings import RelaySettings
from relay.standby import Standby
from tests.support.certificates import half_renewed
from tests.support.relaying import installed
from tests.support.waiting import patient, until

MISMATCH = "key values mismatch"


class Renewing:
    """A relay's settings with a certificate that is new, and a key that is still the old one."""

    def __init__(self, dsn: str, folder: Path) -> None:
        kafka, self.finish = half_renewed(folder)
        self.settings = RelaySettings.model_validate(
            {
                "dsn": {"env": "DSN"},
                "kafka": kafka,
                "standby_poll": "50ms",
                "lease": "2s",
                "transaction_timeout": "1s",
            },
            context={"environ": {"DSN": installed(dsn)}},
        )

    @contextmanager
    def running(self) -> Iterator[Callable[[str], None]]:
        """Run a relay; yield a function that waits for a text in its health."""
        stop, health = threading.Event(), Health()
        relay = Standby(self.settings, health=health, metrics=[Metrics("outbox")])
        with ThreadPoolExecutor() as pool:
            task = pool.submit(relay.run, stop)

            def says(text: str) -> None:
                until(lambda: text in health.ready().reason or task.done(), within=30, what=text)
                assert not task.done(), task.result()

            try:
                yield says
            finally:
                stop.set()
                task.result(patient(30))


@pytest.fixture
def renewing(database: str, tmp_path: Path) -> Renewing:
    return Renewing(database, tmp_path)


def test_an_active_relay_waits_for_the_rest_of_a_renewed_certificate(renewing: Renewing) -> None:
    with renewing.running() as says:
        says(MISMATCH)
        renewing.finish()
        says("Broker transport failure")  # nobody is at the address


def test_a_standby_waits_for_the_rest_of_a_renewed_certificate(renewing: Renewing) -> None:
    role = role_of("outbox", "outbox")
    with try_acquire(renewing.settings.dsn, [role], 60) as lease, renewing.running() as says:
        assert lease is not None
        says(f"{MISMATCH}; this standby could not take over")
        renewing.finish()
        says("Broker transport failure")


def test_operators_are_told_of_a_certificate_without_its_key(renewing: Renewing) -> None:
    (found,) = (each for each in examine(renewing.settings, timeout=1) if "Kafka" in each.what)
    assert found.level == "fail"
    assert MISMATCH in found.what
    with pytest.raises(NoClient, match=MISMATCH):
        status(renewing.settings, timeout=1)
