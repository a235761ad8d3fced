"""The consumers under proof: processes of one group, each with a file of deliveries."""

import json
import threading
import time
from pathlib import Path

from dovecote.demo.children import Child, module
from proof.consumers.count import Delivery

_START_SECONDS = 60.0


class Members:
    """A varying number of members; those that are gone leave their deliveries behind."""

    def __init__(self, directory: Path, settings: dict[str, object], dsn: str) -> None:
        self._directory, self._settings, self._dsn = directory, settings, dsn
        self._number = 0
        self._gone: list[Child] = []
        self.running: list[Child] = []
        self._rest = threading.Event()  # never set, only waited for

    def add(self) -> None:
        """Start one more; call it in the main thread, because the child dies with its thread."""
        self._number += 1
        name = f"member-{self._number}"
        config = self._directory / f"{name}.json"
        told = {
            "member": self._number,
            "dsn": self._dsn,
            "work": 0.005,
            "deliveries": str(self._deliveries(name)),
            "settings": self._settings,
        }
        config.write_text(json.dumps(told), encoding="utf-8")
        log = self._directory / f"{name}.log"
        self.running.append(Child(name, module("proof.consumers.member", str(config)), log))

    def kill(self, victim: Child) -> None:
        victim.kill()
        self.running.remove(victim)

    def leave(self, victim: Child) -> None:
        """
        Ask a member to end, like a supervisor.

        Raises:
            ChildFailed: it ends with an error, or not in time.
        """
        self.running.remove(victim)
        self._gone.append(victim)
        # A member that is still starting would die of the signal, like any process.
        deliveries, deadline = self._deliveries(victim.name), time.monotonic() + _START_SECONDS
        while not deliveries.exists() and time.monotonic() < deadline:
            self._rest.wait(0.05)
        victim.stop(within=40)

    def _deliveries(self, name: str) -> Path:
        return self._directory / f"{name}.deliveries"

    def fallen(self) -> Child | None:
        """Return a member that has ended by itself, which none ever should."""
        return next((child for child in self.running if child.status is not None), None)

    def end(self) -> None:
        """End all members, whatever state they are in."""
        for child in [*self.running, *self._gone]:
            child.end()

    def deliveries(self) -> list[Delivery]:
        """Return all recorded deliveries."""
        found = []
        for file in self._directory.glob("member-*.deliveries"):
            member = int(file.stem.partition("-")[2])
            for line in file.read_text(encoding="utf-8").splitlines():
                time, topic, partition, offset = line.split(" ")
                found.append(Delivery(int(time), member, topic, int(partition), int(offset)))
        return found
