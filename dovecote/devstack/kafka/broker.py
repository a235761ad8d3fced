"""One Kafka broker of several, and the gates between them."""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.keeper import Launch
from dovecote.devstack.network.gates import Route
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.progress import Progress

SETTINGS: Mapping[str, str] = {
    "inter.broker.listener.name": "PEERS",
    "listener.security.protocol.map": ("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT"),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # A broker that waits for an answer from behind a held gate asks again soon.
    "controller.socket.timeout.ms": "3000",
    "replica.socket.timeout.ms": "5000",
    "replica.lag.time.max.ms": "5000",
}
"""Settings in which brokers of a cluster differ from a single one."""

_GRACE_SECONDS = 10.0


class Broker(Kafka):
    """
    One broker of several, which is a controller as well.

    It reaches its peers by names, and has its own hosts file for them: each name leads to the gate
    between these two brokers, and its own name to itself.
    """

    def __init__(
        self,
        directory: Path,
        *,
        number: int,
        cluster: Callable[[], str],
        peers: Sequence["Broker"],
        settings: Mapping[str, str],
        java_options: Sequence[str],
        version: str | None = None,
        temporary: bool = False,
        progress: Progress | None = None,
        is_there: bool = False,
    ) -> None:
        hosts = directory / "hosts"
        super().__init__(
            directory,
            settings={**settings, "node.id": str(number)},
            java_options=[*java_options, f"-Djdk.net.hosts.file={hosts}"],
            version=version,
            temporary=temporary,
            progress=progress,
        )
        self.name = f"broker {number}"
        self.number = number
        self._cluster_id, self._all = cluster, peers
        self._hosts, self._is_there = hosts, is_there
        self._peer_port: int | None = None
        self._gate_port: int | None = None

    @property
    def peer_port(self) -> int:
        """The port for the other brokers."""
        _ = self.ports
        self._peer_port = self._peer_port or self._keep_port("peer-port")
        return self._peer_port

    @property
    def bootstrap(self) -> str:
        """The address of its gate for clients."""
        _ = self.ports
        self._gate_port = self._gate_port or self._keep_port("gate-port")
        return f"{LOOPBACK}:{self._gate_port}"

    def _keep_port(self, name: str) -> int:
        # Ports of a broker that another process already runs are not free, and still right.
        kept = self.directory / name
        return int(kept.read_text()) if self._is_there else super()._keep_port(name)

    @property
    def _asked(self) -> str:
        return f"{LOOPBACK}:{self.ports[0]}"

    @property
    def _cluster(self) -> str:
        return self._cluster_id()

    def routes(self) -> Iterable[Route]:
        """Yield the routes to it."""
        yield Route(for_clients(self.number), self.bootstrap, self._asked)
        for other in self._all:
            if other is not self:
                for port in (self.peer_port, self.ports[1]):
                    here = f"{_seen_by(other.number, self.number)}:{port}"
                    yield Route(between(other.number, self.number), here, f"{LOOPBACK}:{port}")

    def _prepare(self) -> Launch:
        # Without a quorum, as when all are ended at once, no broker could ever hand over its
        # duties.
        return replace(super()._prepare(), grace=_GRACE_SECONDS)

    def _listeners(self) -> Mapping[str, str]:
        name, controller_port = _name(self.number), self.ports[1]
        at = {
            "PLAINTEXT": (self._asked, self.bootstrap),
            "PEERS": (f"{LOOPBACK}:{self.peer_port}", f"{name}:{self.peer_port}"),
            "CONTROLLER": (f"{LOOPBACK}:{controller_port}", f"{name}:{controller_port}"),
        }
        return {
            "listeners": ",".join(f"{each}://{here}" for each, (here, _) in at.items()),
            "advertised.listeners": ",".join(f"{each}://{told}" for each, (_, told) in at.items()),
        }

    def _voters(self) -> str:
        return ",".join(f"{b.number}@{_name(b.number)}:{b.ports[1]}" for b in self._all)

    def _properties(self) -> str:
        # A name without an entry stands for itself: nothing else is looked up.
        lines = [f"{LOOPBACK} localhost {socket.gethostname()}"]
        for each in self._all:
            address = LOOPBACK if each is self else _seen_by(self.number, each.number)
            lines.append(f"{address} {_name(each.number)}")
        self._hosts.write_text("".join(f"{line}\n" for line in lines))
        return super()._properties()


def between(one: int, other: int) -> str:
    """Return the gate through which broker `one` reaches broker `other`."""
    return f"{one}>{other}"


def for_clients(number: int) -> str:
    """Return the gate through which clients reach a broker."""
    return f"clients>{number}"


def isolating(
    number: int, others: Iterable[int], *, from_peers: bool, from_clients: bool
) -> set[str]:
    """Return the gates that cut a broker off."""
    gates = (
        {gate for other in others for gate in both_ways(number, other)} if from_peers else set()
    )
    return gates | ({for_clients(number)} if from_clients else set())


def both_ways(one: int, other: int) -> set[str]:
    """Return the gates between two brokers."""
    return {between(*pair) for pair in permutations((one, other))}


def _name(number: int) -> str:
    return f"broker-{number}"


def _seen_by(one: int, other: int) -> str:
    """Return the loopback address at which broker `one` finds the gate to `other`."""
    return f"127.0.{one}.{other}"
