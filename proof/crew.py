"""The relays under proof: one active, others standing by, each with a network of its own."""

import json
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from demo.children import Child, dovecote
from outbox.errors import DovecoteError
from proof.proxy import Proxy

_ACTIVE, _NO_LONGER = "active: this relay alone may publish", "no longer active"


class GaveUp(DovecoteError):
    """A relay ended by itself, or would not end."""


class Member:
    """One relay."""

    def __init__(self, number: int, directory: Path, dsn: str, toml: str) -> None:
        server = conninfo_to_dict(dsn)
        self.proxy = Proxy((str(server["host"]), int(server["port"] or 5432)))
        self.paused = False
        config = directory / f"relay-{number}.toml"
        config.write_text(toml, encoding="utf-8")
        self.child = Child(
            f"relay {number}",
            dovecote("relay", "--config", str(config)),
            directory / f"relay-{number}.log",
            environment={
                "DOVECOTE_RELAY_DSN": make_conninfo(dsn, host="127.0.0.1", port=self.proxy.port)
            },
        )

    def told(self) -> str:
        """Return its log so far."""
        return self.child.log.read_text(encoding="utf-8", errors="replace")

    @property
    def is_active(self) -> bool:
        """Whether it has the active role as far as it knows itself, and can act on it."""
        log = self.told()
        return not self.paused and log.rfind(_ACTIVE) > log.rfind(_NO_LONGER)

    def pause(self) -> None:
        self.child.pause()
        self.paused = True

    def resume(self) -> None:
        self.child.resume()
        self.paused = False

    def end(self) -> None:
        """Leave nothing of it."""
        self.child.end()
        self.proxy.__exit__(None, None, None)


class Crew:
    """Relays of one outbox, as many as there were at the start, whichever are killed."""

    def __init__(
        self, directory: Path, dsn: str, bootstrap: str, *, size: int, settings: dict[str, object]
    ) -> None:
        self._directory, self._dsn = directory, dsn
        # They notice trouble sooner than with the defaults, and so meet more of it.
        fields = {"standby_poll": "50ms", "lease": "2s", **settings}
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        lines += ["[kafka]", f'"bootstrap.servers" = {json.dumps(bootstrap)}']
        self._toml = "\n".join(lines) + "\n"
        self._number = self._takeovers = 0
        self.members: list[Member] = []
        for _ in range(size):
            self.add()

    def add(self) -> None:
        """Start one more; from the main thread, for it dies with the one that starts it."""
        self._number += 1
        self.members.append(Member(self._number, self._directory, self._dsn, self._toml))

    def active(self) -> Member | None:
        """
        Return a relay that takes itself for the active one.

        Raises:
            GaveUp: one has ended by itself, which none ever should.
        """
        for each in self.members:
            if each.child.status is not None:
                raise GaveUp(each.child.said())
        return next((each for each in self.members if each.is_active), None)

    def replace(self, victim: Member) -> None:
        """Kill one, and start another in its place."""
        victim.child.kill()
        self._retire(victim)
        self.add()

    def unlock(self) -> None:
        """End the session that holds the active role."""
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)"
                " WHERE locktype = 'advisory' AND datname = current_database() AND granted"
            )

    @property
    def takeovers(self) -> int:
        """How often a relay became active after the first time."""
        now = sum(each.told().count(_ACTIVE) for each in self.members)
        return max(0, self._takeovers + now - 1)

    def stop(self) -> None:
        """
        Ask all to end, as a supervisor does.

        Raises:
            ChildFailed: one ends with an error, or not in time.
        """
        while self.members:
            member = self.members[0]
            if member.paused:
                member.resume()
            member.child.stop(within=30)
            self._retire(member)

    def end(self) -> None:
        """Leave nothing, whatever state they are in."""
        while self.members:
            self.members.pop().end()

    def _retire(self, member: Member) -> None:
        self._takeovers += member.told().count(_ACTIVE)
        self.members.remove(member)
        member.end()
