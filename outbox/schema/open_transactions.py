"""Make a slot although transactions are open: wait for them, say which they are, and give up."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.abc import PQGen
from psycopg.waiting import Ready

from outbox.errors import NotFree
from outbox.postgres import overdue
from outbox.postgres.ours import cursor

T = TypeVar("T")
Say = Callable[[str], None]

WITHIN = 60.0
"""How long a new slot waits for open transactions by default, in seconds."""

# How long to wait in silence, in seconds, and the most transactions that one line names.
_SILENCE, _MOST = 3.0, 5

_OPEN = """
SELECT CASE WHEN pid IS NULL THEN format('prepared transaction %%L of role %%s', name, role)
       ELSE format('session %%s of role %%s (%%s)', pid, role, name) END
       || coalesce(', open for ' || floor(age)::bigint || ' s', '')
  FROM (SELECT a.pid, coalesce(a.usename, 'unknown') AS role,
               coalesce(nullif(a.application_name, ''), 'no application name') AS name,
               extract(epoch FROM clock_timestamp() - a.xact_start) AS age,
               a.pid = ANY (pg_blocking_pids(%(waits)s)) AS blocks
          FROM pg_stat_activity AS a
         WHERE a.backend_xid IS NOT NULL AND a.pid NOT IN (pg_backend_pid(), %(waits)s)
        UNION ALL
        SELECT NULL, owner, gid, extract(epoch FROM clock_timestamp() - prepared), false
          FROM pg_prepared_xacts) AS open
 WHERE blocks OR age IS NULL OR age > 1
 ORDER BY blocks DESC, age DESC NULLS LAST
"""


def awaited(conn: Connection[Any], pid: int) -> str:
    """
    Return which transactions a new slot of session `pid` waits for, those to blame first.

    They may be of any database of the server. Their ages may be hidden from this role.
    """
    found = [row[0] for row in cursor(conn).execute(_OPEN, {"waits": pid}).fetchall()]
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ("; ".join(found[:_MOST]) + more) or "transactions that have just ended"


class Replication(overdue.Connection):
    """A session that makes a slot, and says what it waits for if that takes long."""

    say: Callable[[], None] | None = None

    def wait(self, gen: PQGen[T], *how: float | None, **named: float | None) -> T:
        """Wait as its base does."""
        said = gen if self.say is None else _said(gen, self.say)
        return super().wait(said, *how, **named)


def make(
    conn: Connection[Any], replication: Replication, query: str, *, within: float, say: Say
) -> tuple[str, str]:
    """
    Make a slot by `query`; return where it begins, and the name of its snapshot.

    Raises:
        NotFree: transactions are still open after `within` seconds; nothing was made.
    """
    pid = replication.info.backend_pid

    def waits() -> None:
        say(f"waiting up to {within:g} s for open transactions: {awaited(conn, pid)}")

    # Limits of the role are for its statements, and this one has a limit of its own.
    replication.execute("SET lock_timeout = 0")
    replication.patience, replication.say = within, waits
    try:
        row = replication.execute(query.encode()).fetchone()
    except overdue.Overdue as error:
        found = awaited(conn, pid)
        msg = (
            f"the slot is not made after {within:g} s, because it waits for every transaction "
            f"that was open: {found}; wait for their ends or end them with "
            "pg_terminate_backend(), and run it again, with a longer --within if they are to last"
        )
        raise NotFree(msg) from error
    finally:
        replication.say = None
        if replication.closed:
            # The server would notice only after the last of these transactions.
            cursor(conn).execute("SELECT pg_terminate_backend(%s)", [pid])
    if row is None:
        msg = f"{query}: no answer"
        raise AssertionError(msg)
    return str(row[1]), str(row[2])


def _said(gen: PQGen[T], say: Callable[[], None]) -> PQGen[T]:
    """Run `gen`, and call `say` once if the server is silent for a while."""
    since, is_said = time.monotonic(), False
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready == Ready.NONE and not is_said and time.monotonic() - since > _SILENCE:
                is_said = True
                say()
            wanted = gen.send(ready)
    except StopIteration as done:
        result: T = done.value
        return result
