"""Run relays in this process, for tests that need no processes of their own."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from relay.health import Health
from relay.metrics import Metrics
from relay.settings import RelaySettings
from relay.standby import Standby
from tests.support.waiting import patient, until


@contextmanager
def running(relays: Iterable[RelaySettings]) -> Iterator[None]:
    """Run a relay for each of the settings, wait until all are active, and end them normally."""
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        health, tasks = [], []
        for settings in relays:
            own = Health()
            metrics = [Metrics(shard.name) for shard in settings.own_shards()]
            tasks.append(pool.submit(Standby(settings, health=own, metrics=metrics).run, stop))
            health.append(own)

        def settled() -> bool:
            active = all(own.role() == "active" for own in health)
            return active or any(task.done() for task in tasks)

        try:
            until(settled, within=30, what="active relays")
            yield
        finally:
            stop.set()
            for task in tasks:
                task.result(patient(30))
