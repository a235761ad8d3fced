"""Gates between servers, in a separate process, which holds, breaks and opens them."""

import json
import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dovecote.devstack.errors import StackError
from dovecote.devstack.keeper import Launch
from dovecote.devstack.network import gatekeeper
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.server import Server

_ANSWER_SECONDS = 10.0


class Route(NamedTuple):
    """One way through a gate; a gate may have several."""

    gate: str
    here: str
    """The address to connect to, as host:port."""
    there: str
    """The address that it leads to."""


class Gates(Server):
    """A process that lets connections through along `routes`."""

    name = "the gates"

    def __init__(
        self, directory: Path, routes: Sequence[Route], *, temporary: bool = False
    ) -> None:
        super().__init__(directory, temporary=temporary)
        self._routes = routes
        self._port: int | None = None

    @property
    def door(self) -> str:
        """The address that takes the lists of gates to shut."""
        if self._port is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._port = self._keep_port("port")
        return f"{LOOPBACK}:{self._port}"

    def shut(
        self,
        *,
        held: Collection[str] = (),
        broken: Collection[str] = (),
        leads: Mapping[str, str] | None = None,
        slow: Mapping[str, float] | None = None,
    ) -> None:
        """
        Hold the gates `held`, break `broken`, and open all others.

        A connection through a gate in `slow` carries that many bytes a second each way. New
        connections through a gate in `leads` go to the address there from now on.

        Raises:
            StackError: they do not answer.
        """
        shut(self.door, held=held, broken=broken, leads=leads, slow=slow)

    def _prepare(self) -> Launch:
        config = self.directory / "gates.json"
        routes = [route._asdict() for route in self._routes]
        config.write_text(json.dumps({"door": self.door, "routes": routes}))
        return Launch(
            argv=[sys.executable, "-P", gatekeeper.__file__, str(config)],
            env=dict(os.environ),
            directory=str(self.directory),
            log=str(self.log),
        )

    def _probe(self) -> str | None:
        try:
            self.shut()
        except StackError as error:
            return str(error)
        return None


def shut(
    door: str,
    *,
    held: Collection[str] = (),
    broken: Collection[str] = (),
    leads: Mapping[str, str] | None = None,
    slow: Mapping[str, float] | None = None,
) -> None:
    """
    As `Gates.shut`, for the gates with this `door`.

    Raises:
        StackError: they do not answer.
    """
    host, _, port = door.rpartition(":")
    asked = json.dumps(
        {
            "held": sorted(held),
            "broken": sorted(broken),
            "leads": dict(leads or {}),
            "slow": dict(slow or {}),
        }
    )
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS) as conn:
            conn.sendall(f"{asked}\n".encode())
            answer = conn.recv(16)
    except OSError as error:
        msg = f"the gates at {door} do not answer ({error})"
        raise StackError(msg) from error
    if answer != b"done\n":
        msg = f"the gates at {door} did not obey"
        raise StackError(msg)
