"""Several Kafka brokers in one cluster, with a gate between each two and before each one."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from typing import Self
from weakref import finalize

from dovecote.devstack.errors import StackError
from dovecote.devstack.kafka.broker import SETTINGS, Broker, both_ways, for_clients, isolating
from dovecote.devstack.kafka.kafka import JAVA_OPTIONS, new_cluster_id
from dovecote.devstack.network.gates import Gates
from dovecote.devstack.places import has_address, temporary_directory
from dovecote.devstack.progress import Progress
from dovecote.devstack.server import Server


class Cluster:
    """
    Brokers that replicate each topic three times and ask for two copies of each record.

    Clients begin at `bootstrap`. Broker N is `broker(N)`, from 1. If a broker is cut off, neither
    it nor its clients get an error: the gates hold back all that they send. With `reset` their
    connections break instead. Brokers in `running` are left to the process that runs them.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = JAVA_OPTIONS,
        version: str | None = None,
        progress: Progress | None = None,
        running: Collection[int] = (),
    ) -> None:
        temporary = directory is None
        self.directory = (directory or temporary_directory(None)).absolute()
        self._temporary = temporary
        if temporary:
            finalize(self, _remove, self.directory, os.getpid())
        self.brokers: list[Broker] = []
        self.brokers += [
            Broker(
                self.directory / f"kafka-{number}",
                number=number,
                cluster=self._id,
                peers=self.brokers,
                settings={**SETTINGS, **(settings or {})},
                java_options=java_options,
                version=version,
                temporary=temporary,
                progress=progress,
                is_there=number in running,
            )
            for number in range(1, brokers + 1)
        ]
        _ = self._id()  # set it before several threads ask for it
        routes = [route for broker in self.brokers for route in broker.routes()]
        self._hosts = {route.here.rpartition(":")[0] for route in routes}
        self.gates = Gates(self.directory / "gates", routes, temporary=temporary)
        self._held: set[str] = set()
        self._broken: set[str] = set()

    def _id(self) -> str:
        """Return the cluster's id, which is chosen once and then stays the same."""
        self.directory.mkdir(parents=True, exist_ok=True)
        kept = self.directory / "cluster-id"
        if not kept.exists():
            kept.write_text(new_cluster_id())
        return kept.read_text()

    @property
    def bootstrap(self) -> str:
        """The addresses for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def servers(self) -> Sequence[Server]:
        """All of its processes, the gates first."""
        return [self.gates, *self.brokers]

    def broker(self, number: int) -> Broker:
        return self.brokers[number - 1]

    def start(self) -> None:
        """
        Start what does not run, and wait until each broker has joined the cluster.

        Raises:
            StackError: one did not start; none runs then.
        """
        if lacking := sorted({host for host in self._hosts if not has_address(host)}):
            msg = (
                f"this system does not listen at {', '.join(lacking)}, which gates between "
                f"brokers need; on macOS: sudo ifconfig lo0 alias {lacking[0]}, and so on"
            )
            raise StackError(msg)
        try:
            self.gates.start()
            _each(broker.start for broker in self.brokers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything; the data goes if the folder was temporary."""
        # The last broker, or one that is cut off, has nobody to hand its partitions to.
        if self._temporary:
            self.kill()
        else:
            self.heal()
            _each(broker.stop for broker in self.brokers)
        self.gates.kill()
        if self._temporary:
            _remove(self.directory, os.getpid())

    def kill(self) -> None:
        """SIGKILL all brokers."""
        for broker in self.brokers:
            broker.kill()

    def isolate(
        self,
        number: int,
        *,
        from_peers: bool = True,
        from_clients: bool = False,
        reset: bool = False,
    ) -> None:
        """Cut the broker off from all others and their controllers, or from clients, or both."""
        others = [each.number for each in self.brokers if each.number != number]
        gates = isolating(number, others, from_peers=from_peers, from_clients=from_clients)
        self._shut(gates, reset=reset)

    def cut(self, one: int, other: int, *, reset: bool = False) -> None:
        """Cut two brokers off from each other."""
        self._shut(both_ways(one, other), reset=reset)

    def slow(self, number: int, rate: float) -> None:
        """Limit traffic between a broker and a client to `rate` bytes a second, until `heal`."""
        self.gates.shut(held=self._held, broken=self._broken, slow={for_clients(number): rate})

    def heal(self) -> None:
        """Open all gates; held data arrives."""
        self._held, self._broken = set(), set()
        if self.gates.running:
            self.gates.shut()

    def _shut(self, gates: Collection[str], *, reset: bool) -> None:
        if reset:
            self._broken |= set(gates)
        else:
            self._held |= set(gates)
        self.gates.shut(held=self._held, broken=self._broken)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _each(actions: Iterable[Callable[[], None]]) -> None:
    """Run all actions at the same time, and raise the first error after the last has ended."""
    wanted = list(actions)
    with ThreadPoolExecutor(len(wanted)) as pool:
        done = [pool.submit(action) for action in wanted]
    for each in done:
        each.result()


def _remove(directory: Path, owner: int) -> None:
    """Remove the brokers' temporary folder, but not from a fork of the process that made it."""
    if os.getpid() == owner:
        rmtree(directory, ignore_errors=True)
