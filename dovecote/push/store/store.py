"""Store subscriptions in Postgres, with sealed secrets."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg import Connection
from psycopg.types.json import Jsonb

from dovecote.push.errors import Conflict, NoSuchSubscription, TooMany
from dovecote.push.rules.subscription.changing import changed
from dovecote.push.rules.subscription.fields import MASK, SEALED
from dovecote.push.rules.subscription.subscription import (
    StoredStatus,
    Subscription,
    subscription,
)
from dovecote.push.store.lease import alone, at_once
from dovecote.push.store.secrets import Keys
from dovecote.push.store.tables import Tables

# Delete the history of a group's held records, once no subscription has the group.
_FORGET = (
    "DELETE FROM {}.held WHERE consumer = %s AND NOT EXISTS (SELECT FROM {}.subscriptions"
    " WHERE coalesce(spec ->> 'group', 'dovecote.push.' || id) = %s)"
)

# In place of a secret that nobody reads.
_NOTHING = f"{SEALED}{MASK}"


# No subscription is nested so deeply.
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Stored:
    """A subscription as the database has it: its secrets are sealed."""

    id: str
    version: int
    spec: dict[str, Any]
    status: StoredStatus
    created_at: datetime
    owner: str = ""
    """The owner that its maker's token has; empty: nobody's."""

    @property
    def group(self) -> str:
        """Its consumer group; known even if the subscription is not valid any more."""
        return str(self.spec.get("group") or f"dovecote.push.{self.id}")

    def report(self) -> dict[str, Any]:
        """Return its fields, with secrets masked."""
        return {
            **_mapped(self.spec, lambda _: MASK),
            "status": self.status.model_dump(mode="json"),
        }

    def subscription(self, keys: Keys) -> Subscription:
        """
        Return its fields, with secrets.

        Raises:
            ValidationError: a secret is sealed with a key that is gone.
        """
        return subscription(self.spec, unseal=keys.unseal)

    def readable(self) -> Subscription:
        """Return its fields without secrets, for which no key is needed."""
        return subscription(
            {**_mapped(self.spec, lambda _: _NOTHING), "signing": None}, unseal=lambda text: text
        )


class Store:
    """
    All subscriptions; every method is a transaction, and may be called in any thread.

    Each of them raises `Away` if Postgres does not answer.
    """

    def __init__(self, tables: Tables, keys: Keys) -> None:
        self._tables, self._keys = tables, keys

    def all(self) -> list[Stored]:
        """Return all subscriptions, by name."""
        with self._tables.begin() as conn:
            return self._read(conn, "ORDER BY id")

    def get(self, id_: str) -> Stored:
        """
        Return one subscription.

        Raises:
            NoSuchSubscription: there is none with that name.
        """
        with self._tables.begin() as conn:
            return _one(self._read(conn, "WHERE id = %s", id_), id_)

    def require(self, wanted: Subscription, owner: str, most: int | None) -> None:
        """
        Check that a new subscription of `owner` can be stored.

        Raises:
            TooMany: the owner has `most` already.
            Refused: it has secrets, and there is no key to seal them with.
        """
        self._sealed(wanted)
        if most is not None:
            with self._tables.begin() as conn:
                self._require_room(conn, owner, most - 1)

    def create(
        self, wanted: Subscription, owner: str = "", most: int | None = None
    ) -> tuple[Stored, bool]:
        """
        Store a subscription; return it, and whether it is new. An equal one changes nothing.

        `owner` is the owner of a new one, who then has no more than `most`.

        Raises:
            Conflict: there is a different one with that name.
            TooMany: the owner would have more than `most`.
            Refused: it has secrets, and there is no key to seal them with.
        """
        with self._tables.begin() as conn:
            new = self._tables.execute(
                conn,
                "INSERT INTO {}.subscriptions (id, spec, owner) VALUES (%s, %s, %s)"
                " ON CONFLICT DO NOTHING RETURNING id",
                wanted.id,
                Jsonb(self._sealed(wanted)),
                owner,
            ).fetchone()
            # The trigger lets one insert at a time, and this statement sees those before.
            if new is not None and most is not None:
                self._require_room(conn, owner, most)
            found = _one(self._read(conn, "WHERE id = %s", wanted.id), wanted.id)
        if new is None and not self._is(found, wanted):
            msg = (
                f"there is another subscription called {wanted.id!r}: delete it first, or "
                "replace it with PUT"
            )
            raise Conflict(msg)
        return found, new is not None

    def after(self, found: Stored, given: Mapping[str, Any]) -> Subscription:
        """
        Return a subscription as it is after fields of it are set.

        Raises:
            NotChangeable: a field cannot be set like this.
            ValidationError: it would not be valid.
        """
        return subscription(changed(found.spec, given), unseal=self._keys.unseal)

    def replace(self, wanted: Subscription, version: int | None = None) -> Stored:
        """
        Replace a subscription, and return it; its state stays.

        Raises:
            Conflict: `version` is given, and it has another one by now.
            NoSuchSubscription: there is none with that name.
            Refused: it has secrets, and there is no key to seal them with.
        """
        with self._tables.begin() as conn:
            known = _one(self._read(conn, "WHERE id = %s FOR UPDATE", wanted.id), wanted.id)
            if version is not None and known.version != version:
                msg = (
                    f"subscription {wanted.id!r} was changed meanwhile: it has version "
                    f"{known.version} and not {version}; look at it, and try again"
                )
                raise Conflict(msg)
            if self._is(known, wanted):
                return known
            self._tables.execute(
                conn,
                "UPDATE {}.subscriptions SET spec = %s, version = version + 1 WHERE id = %s",
                Jsonb(self._sealed(wanted)),
                wanted.id,
            )
            return _one(self._read(conn, "WHERE id = %s", wanted.id), wanted.id)

    def delete(self, id_: str) -> Stored:
        """
        Delete a subscription, and return it.

        Raises:
            NoSuchSubscription: there is none with that name.
        """
        with self._tables.begin() as conn:
            known = _one(self._read(conn, "WHERE id = %s FOR UPDATE", id_), id_)
            self._tables.execute(conn, "DELETE FROM {}.subscriptions WHERE id = %s", id_)
            self._tables.execute(conn, _FORGET, known.group, known.group)
            return known

    def set_state(
        self, id_: str, state: Literal["active", "paused", "disabled"], reason: str = ""
    ) -> Stored:
        """
        Change whether a subscription delivers, and return it.

        Raises:
            NoSuchSubscription: there is none with that name.
        """
        with self._tables.begin() as conn:
            self._tables.execute(
                conn,
                "UPDATE {}.subscriptions SET since = now(), state = %s, reason = %s"
                " WHERE id = %s AND (state, reason) <> (%s, %s)",
                *(state, reason, id_, state, reason),
            )
            return _one(self._read(conn, "WHERE id = %s", id_), id_)

    def disable(self, id_: str, url: str, reason: str) -> bool:
        """
        Disable a subscription, if it is active and its endpoint is `url`; return whether it was.

        An answer of an endpoint that it had before says nothing about the present one.
        """
        with self._tables.begin() as conn:
            done = self._tables.execute(
                conn,
                "UPDATE {}.subscriptions SET since = now(), state = 'disabled', reason = %s"
                " WHERE id = %s AND state = 'active' AND spec -> 'endpoint' ->> 'url' = %s",
                *(reason, id_, url),
            )
            return done.rowcount > 0

    def begin_pause(self, ids: Sequence[str], reason: str) -> list[str]:
        """
        Pause the active ones, and return them, along with those already paused for this reason.
        """
        with self._tables.begin() as conn:
            rows = self._tables.execute(
                conn,
                "UPDATE {}.subscriptions SET since = now(), state = 'paused', reason = %s"
                " WHERE id = ANY(%s) AND (state = 'active' OR state = 'paused' AND reason = %s)"
                " RETURNING id",
                *(reason, list(ids), reason),
            )
            return [id_ for (id_,) in rows]

    def end_pause(self, ids: Sequence[str], reason: str) -> None:
        """Resume subscriptions that are paused for this reason, and no others."""
        with self._tables.begin() as conn:
            self._tables.execute(
                conn,
                "UPDATE {}.subscriptions SET since = now(), state = 'active', reason = ''"
                " WHERE id = ANY(%s) AND state = 'paused' AND reason = %s",
                *(list(ids), reason),
            )

    def alone_with(self, what: str, otherwise: str) -> AbstractContextManager[None]:
        """Keep everybody else from working on `what`; as `lease.at_once`."""
        return at_once(self._tables.dsn, self._tables.schema, what, otherwise)

    def unread(self, id_: str, *, seconds: float) -> AbstractContextManager[None]:
        """
        Keep all processes from reading a subscription's explicit partitions; as `lease.alone`.
        """
        return alone(self._tables.dsn, self._tables.schema, id_, seconds=seconds)

    def revision(self) -> int:
        """Return a number that rises with every change."""
        with self._tables.begin() as conn:
            row = self._tables.execute(conn, "SELECT number FROM {}.revision").fetchone()
        return int(row[0]) if row else 0

    def reseal(self) -> int:
        """Seal again with the newest key what an older one has sealed; return how many changed."""
        changed = 0
        with self._tables.begin() as conn:
            for each in self._read(conn, "ORDER BY id FOR UPDATE"):
                renewed = _mapped(each.spec, self._renewed)
                if renewed != each.spec:
                    changed += 1
                    self._tables.execute(
                        conn,
                        "UPDATE {}.subscriptions SET spec = %s WHERE id = %s",
                        Jsonb(renewed),
                        each.id,
                    )
        return changed

    def _require_room(self, conn: Connection, owner: str, most: int) -> None:
        query = "SELECT count(*) FROM {}.subscriptions WHERE owner = %s"
        (number,) = self._tables.execute(conn, query, owner).fetchall()[0]
        if number > most:
            msg = f"{owner!r} has too many subscriptions"
            raise TooMany(msg)

    def _sealed(self, wanted: Subscription) -> dict[str, Any]:
        return wanted.model_dump(mode="json", context={"seal": self._keys.seal})

    def _is(self, found: Stored, wanted: Subscription) -> bool:
        try:
            return found.subscription(self._keys) == wanted
        except ValueError:
            return False  # sealed with a key that is gone, so nobody knows

    def _renewed(self, sealed: str) -> str:
        token = sealed.removeprefix(SEALED)
        if self._keys.is_current(token):
            return sealed
        try:
            return SEALED + self._keys.seal(self._keys.unseal(token))
        except ValueError:
            return sealed  # delivery fails on it, and the subscription reports that

    def _read(self, conn: Connection, which: str, *values: object) -> list[Stored]:
        query = (
            "SELECT id, version, spec::text, state, reason, since, created_at, owner"
            " FROM {}.subscriptions "
        )
        return [
            Stored(
                id_,
                version,
                # Each has an id, by which it is shown and can be deleted.
                {**_read_back(spec), "id": id_},
                StoredStatus(state=state, reason=reason, since=since),
                created,
                owner,
            )
            for id_, version, spec, state, reason, since, created, owner in self._tables.execute(
                conn, query + which, *values
            )
        ]


def _one(found: list[Stored], id_: str) -> Stored:
    if not found:
        raise NoSuchSubscription(no_such(id_))
    return found[0]


def no_such(id_: str) -> str:
    """Return how an error says that there is no subscription with this id."""
    return f"there is no subscription called {id_!r}"


def _read_back(text: str) -> dict[str, Any]:
    """Return a specification as far as it can be one, whatever is stored."""
    try:
        found = _mapped(json.loads(text), str)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return {}
    return found if isinstance(found, dict) else {}


def _mapped(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:  # noqa: ANN401  # JSON
    """Return JSON with each sealed secret replaced; what is nested too deeply is left out."""
    match value:
        case dict() | list() if depth == _DEEPEST:
            return None
        case dict():
            return {name: _mapped(each, change, depth + 1) for name, each in value.items()}
        case list():
            return [_mapped(each, change, depth + 1) for each in value]
        case str() if value.startswith(SEALED):
            return change(value)
        case _:
            return value
