"""The relays under proof: some active, others on standby, each with a network of its own."""

import json
import signal
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.demo.children import Child, ChildFailed, dovecote
from outbox.errors import DovecoteError
from proof.journal import Journal
from proof.proxy import Proxy

_ACTIVE, _NO_LONGER = "active: this relay alone may publish", "no longer active"
# The time that a supervisor waits before it starts a relay again.
_RESTART_SECONDS = 0.3


class GaveUp(DovecoteError):
    """A relay ended by itself where none should, or would not end."""


class Member:
    """One relay, which its supervisor starts again whenever it ends."""

    def __init__(self, number: int, directory: Path, dsn: str, config: Path) -> None:
        server = conninfo_to_dict(dsn)
        self.proxy = Proxy((str(server["host"]), int(server["port"] or 5432)))
        self.paused = False
        self.number = number
        self._config, self._log = config, directory / f"relay-{number}.log"
        self._dsn = make_conninfo(dsn, host="127.0.0.1", port=self.proxy.port)
        self._ended: float | None = None
        self.child = self._started()

    def _started(self) -> Child:
        return Child(
            f"relay {self.number}",
            dovecote("relay", "run", "--config", str(self._config)),
            self._log,
            environment={"DOVECOTE_RELAY_DSN": self._dsn},
        )

    def look_after(self) -> str | None:
        """
        Start it again a while after it has ended; return its last output when its end is noticed.
        """
        if self.child.status is None:
            return None
        if self._ended is None:
            self._ended = time.monotonic()
            return self.child.said()
        if time.monotonic() - self._ended > _RESTART_SECONDS:
            self._ended = None
            self.child = self._started()
        return None

    def told(self) -> str:
        """Return its log so far."""
        return self.child.log.read_text(encoding="utf-8", errors="replace")

    @property
    def is_active(self) -> bool:
        """Return whether it believes that it has the active role, and can act on it."""
        log = self.told()
        is_active = log.rfind(_ACTIVE) > log.rfind(_NO_LONGER)
        return is_active and not self.paused and self.child.status is None

    def pause(self) -> None:
        self.child.pause()
        self.paused = True

    def resume(self) -> None:
        self.child.resume()
        self.paused = False

    def end(self) -> None:
        """End it and its network."""
        self.child.end()
        self.proxy.__exit__(None, None, None)


class Crew:
    """The relays of one outbox; killed ones are replaced, so that their number stays the same."""

    def __init__(
        self,
        directory: Path,
        dsn: str,
        bootstrap: str,
        *,
        size: int,
        settings: dict[str, object],
        journal: Journal,
    ) -> None:
        self._directory, self._dsn, self._bootstrap = directory, dsn, bootstrap
        self._settings, self._size, self._journal = settings, size, journal
        self._number = self._takeovers = self.restarted = 0
        self.may_refuse = False
        """A relay may end with a refusal now."""
        self.refusals: list[str] = []
        self.members: list[Member] = []
        self.shards = 1
        self.fill()

    @property
    def config(self) -> Path:
        """The settings of the relays that are started next."""
        return self.configured(self.shards)

    def configured(self, shards: int) -> Path:
        """Return a file with the settings of relays and commands for `shards` shards."""
        # With these settings they notice trouble sooner than by default, and so meet more of it.
        fields: dict[str, object] = {
            "standby_poll": "50ms",
            "lease": "2s",
            "park_after": "1s",
            "shards": shards,
            **self._settings,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        lines += ["[kafka]", f'"bootstrap.servers" = {json.dumps(self._bootstrap)}']
        file = self._directory / f"relay-{shards}-shards.toml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file

    def fill(self) -> None:
        """Start the missing relays; call it in the main thread, with which they would end."""
        while len(self.members) < self._size:
            self._number += 1
            member = Member(self._number, self._directory, self._dsn, self.config)
            self.members.append(member)

    def look_after(self) -> None:
        """
        Start relays that have ended again, like a supervisor.

        Raises:
            GaveUp: one has ended by itself where none ever should.
        """
        for each in self.members:
            said = each.look_after()
            if said is None:
                continue
            self.restarted += 1
            self.refusals.append(said)
            self._journal.note(f"relay {each.number} ended: {said.splitlines()[-1].strip()[:200]}")
            if not self.may_refuse:
                raise GaveUp(said)

    def actives(self) -> list[Member]:
        """Return the relays that believe that they are active."""
        self.look_after()
        return [each for each in self.members if each.is_active]

    def replace(self, victim: Member) -> None:
        """Kill a relay, and start another in its place."""
        victim.child.kill()
        self._retire(victim)
        self.fill()

    def unlock(self) -> None:
        """End the sessions that hold active roles."""
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)"
                " WHERE locktype = 'advisory' AND datname = current_database() AND granted"
                " AND pid <> pg_backend_pid()"
            )

    @property
    def takeovers(self) -> int:
        """The number of times that a relay became active after the first time."""
        now = sum(each.told().count(_ACTIVE) for each in self.members)
        return max(0, self._takeovers + now - 1)

    def stop(self) -> None:
        """
        Ask all relays to end, like a supervisor.

        Raises:
            ChildFailed: one ends with an error, or not in time.
        """
        while self.members:
            member = self.members[0]
            if member.paused:
                member.resume()
            if member.child.status is None:
                self._stop(member)
            self._retire(member)

    @staticmethod
    def _stop(member: Member) -> None:
        try:
            member.child.stop(within=60)
        except ChildFailed:
            # A relay that has just been started does not handle the signal yet.
            if member.child.status != -signal.SIGTERM or _ACTIVE in member.told():
                raise

    def kill(self) -> None:
        """Kill all relays; `fill` starts others in their place."""
        while self.members:
            self.members[0].child.end()
            self._retire(self.members[0])

    def end(self) -> None:
        """End all relays, whatever state they are in."""
        while self.members:
            self.members.pop().end()

    def _retire(self, member: Member) -> None:
        self._takeovers += member.told().count(_ACTIVE)
        self.members.remove(member)
        member.end()
