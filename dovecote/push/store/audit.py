"""Keep who did what over the API, and what was refused: in the database, and in the log."""

import logging
import threading
from collections import defaultdict, deque
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from dovecote.process.rarely import Rarely
from dovecote.push.store.tables import Tables
from outbox.errors import DovecoteError

_log = logging.getLogger("dovecote.push.audit")

_PENDING = 2_000
"""Most entries of an actor, and as many refused ones, that wait for the database."""
_STRANGERS = 100
_MOST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Deed:
    """One request and its outcome; its sender may have chosen every text in it."""

    method: str
    path: str
    subscription: str
    status: int
    """Status of the answer."""
    error: str
    """The reason in the answer, if it failed."""
    detail: str
    """Where a subscription now reads and sends; or a position, or the selected letters."""
    address: str
    """Address of the client that was connected."""
    forwarded: str
    """`X-Forwarded-For`, which a proxy sets; any other client may claim anything here."""
    times: int = 1
    """How many requests of strangers this stands for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the audit log."""

    at: datetime
    actor: str
    """The name of the token; empty: none that is known."""
    owner: str
    """The owner of the subscription, if the actor may see it."""
    deed: Deed

    @property
    def is_refused(self) -> bool:
        return self.deed.status >= 400  # noqa: PLR2004  # as HTTP says

    def __str__(self) -> str:
        deed = self.deed
        told = [
            f"{self.actor or 'nobody known'} from {deed.address}",
            f"(for {deed.forwarded})" if deed.forwarded else "",
            f"{deed.method} {deed.path}: {deed.status}",
            f"{deed.times} times" if deed.times > 1 else "",
            deed.error or deed.detail,
        ]
        return " ".join(filter(None, told))


class Audit:
    """
    Writes entries in a thread of its own, at once, and keeps the last `most` of each actor.

    Entries of refused requests are counted apart, so nobody displaces what they did by what they
    are refused. While the database is away, nobody displaces entries of others. Requests without
    a known token are summed up once a second.
    """

    def __init__(self, tables: Tables, *, most: int) -> None:
        self._tables, self._most = tables, most
        self._lock, self._writing = threading.Lock(), threading.Lock()
        # Tokens are known and few, so these are, too.
        self._pending: defaultdict[tuple[str, bool], deque[Entry]] = defaultdict(
            lambda: deque(maxlen=_PENDING)
        )
        self._strangers: dict[tuple[str, str, int], Entry] = {}
        self._stop, self._wake = threading.Event(), threading.Event()
        self._rarely = Rarely(_log)
        self._thread = threading.Thread(target=self._run, name="push-audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, and end."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def note(self, entry: Entry) -> None:
        """Note an entry; it never waits for the database."""
        entry = _bounded(entry)
        if not entry.actor:
            self._sum_up(entry)
            return
        if entry.is_refused:
            self._rarely.warning("%s", entry)
        else:
            _log.info("%s", entry)
        with self._lock:
            pending = self._pending[entry.actor, entry.is_refused]
            if len(pending) == _PENDING:
                self._rarely.warning("an entry is in this log alone: %s", pending[0])
            pending.append(entry)
        self._wake.set()

    def entries(
        self, *, limit: int, subscription: str | None, actor: str | None, owner: str | None
    ) -> list[dict[str, Any]]:
        """
        Return the last entries, newest first, as JSON.

        `subscription`: those about it alone. `actor` and `owner`: those of this actor, or about a
        subscription of this owner; the addresses of other actors are left out.
        """
        self._write()
        query = (
            "SELECT at, actor, refused, told FROM {}.audit"
            " WHERE (%s::text IS NULL OR told ->> 'subscription' = %s)"
            " AND (%s::text IS NULL OR actor = %s OR owner = %s AND owner <> '')"
            " ORDER BY id DESC LIMIT %s"
        )
        values = (subscription, subscription, actor, actor, owner, limit)
        with self._tables.begin() as conn:
            rows = list(self._tables.execute(conn, query, *values))
        hidden = {"address": None, "forwarded": None}
        return [
            {
                "at": at.isoformat(),
                "actor": by or None,
                "refused": refused,
                **told,
                **(hidden if actor is not None and by != actor else {}),
            }
            for at, by, refused, told in rows
        ]

    def _sum_up(self, entry: Entry) -> None:
        deed = entry.deed
        key = deed.address, deed.method, deed.status
        with self._lock:
            if key not in self._strangers and len(self._strangers) >= _STRANGERS:
                key = "", "", 0
                deed = replace(deed, address="several addresses", forwarded="")
            before = self._strangers.get(key)
            times = 1 if before is None else before.deed.times + 1
            self._strangers[key] = replace(entry, deed=replace(deed, times=times))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(1.0)
            self._wake.clear()
            try:
                self._write()
            except DovecoteError as error:
                _log.warning("the audit log is not written for now: %s", error)
                self._stop.wait(1.0)
            except Exception:  # noqa: BLE001  # without this thread nothing more would be written
                _log.exception("the audit log is not written for now")
                self._stop.wait(1.0)
        try:
            self._write()
        except DovecoteError as error:
            _log.warning("the last entries of the audit log are in this log alone: %s", error)

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                strangers = list(self._strangers.values())
                self._strangers.clear()
                for entry in strangers:
                    self._pending[entry.actor, True].append(entry)
                entries = [each for kind in self._pending.values() for each in kind]
            for entry in strangers:
                self._rarely.warning("%s", entry)
            if not entries:
                return
            with self._tables.begin() as conn:
                self._insert(conn, entries)
            written = set(map(id, entries))
            with self._lock:
                for kind in self._pending.values():
                    while kind and id(kind[0]) in written:
                        kind.popleft()

    def _insert(self, conn: Connection, entries: list[Entry]) -> None:
        entries = sorted(entries, key=lambda each: each.at)
        self._tables.execute(
            conn,
            "INSERT INTO {}.audit (at, actor, owner, refused, told)"
            " SELECT * FROM unnest(%s::timestamptz[], %s::text[], %s::text[], %s::boolean[],"
            " %s::jsonb[])",
            [each.at for each in entries],
            [each.actor for each in entries],
            [each.owner for each in entries],
            [each.is_refused for each in entries],
            [Jsonb(asdict(each.deed)) for each in entries],
        )
        for actor, refused in sorted({(each.actor, each.is_refused) for each in entries}):
            self._tables.execute(
                conn,
                "DELETE FROM {}.audit WHERE actor = %s AND refused = %s AND id <= (SELECT id"
                " FROM {}.audit WHERE actor = %s AND refused = %s ORDER BY id DESC"
                " OFFSET %s LIMIT 1)",
                *(actor, refused, actor, refused, self._most),
            )


def _bounded(entry: Entry) -> Entry:
    """Return an entry that Postgres takes, whatever its sender has chosen, and no larger one."""
    texts: dict[str, Any] = {
        name: value[:_MOST_TEXT].encode(errors="replace").decode().replace("\0", "")
        for name, value in asdict(entry.deed).items()
        if isinstance(value, str)
    }
    return replace(entry, deed=replace(entry.deed, **texts))
