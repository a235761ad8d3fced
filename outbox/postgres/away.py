"""Decide which errors say that Postgres is away, and not that a statement is at fault."""

import re
from collections.abc import Iterator, Mapping
from traceback import walk_tb
from types import MappingProxyType

AWAY: Mapping[str, str] = MappingProxyType(
    {
        "08": "the connection failed, or a pooler could not provide one",
        "25006": "the server takes no writes: a standby, or an old primary after a failover",
        "26000": "a pooler gave the session to others, who lack our prepared statement",
        "42P05": "a pooler gave us a session of others, who have prepared this statement",
        "53000": "the server lacks a resource",
        "53100": "its disk is full",
        "53200": "it lacks memory",
        "53300": "it takes no more connections",
        "57000": "an operator intervened",
        "57P": "it shuts down, starts, or ended the session",
        "58": "its system failed, as with a disk that cannot be read",
        "F0": "its configuration cannot be read",
        "HV00N": "a foreign server, asked through it, cannot be reached",
        "XX001": "its data are damaged, and wait for a repair",
        "XX002": "an index is damaged, and waits for a repair",
    }
)
"""
SQLSTATEs, or how they begin, of a server that is away, with the reason.

These are not among them. The statement or its record may be at fault, and would be tried for ever:

53400: more temporary files than `temp_file_limit`.  54: beyond a limit of Postgres.
55000: an object in the wrong state.  57014: `statement_timeout`, or somebody cancelled it.
25P03, 25P04: the transaction took too long.  XX000: an error inside of Postgres or of a function.
42501, 42P01, 42883: a right, a table or a function is missing.
"""

COLLISIONS: Mapping[str, str] = MappingProxyType(
    {
        "40001": "another transaction came first",
        "40003": "it is not known whether the statement was completed",
        "40P01": "a deadlock with another transaction",
        "55P03": "another transaction has the lock",
    }
)
"""SQLSTATEs of statements that another transaction stopped: they succeed when it is over."""

AT_FAULT: Mapping[str, str] = MappingProxyType(
    {
        "21": "a statement found more rows than it may",
        "22": "a value that the database cannot hold",
        "23": "a constraint of a table",
        "44": "a condition of a view",
        "54": "a value beyond a limit of Postgres",
        "P0": "a trigger or a function raised it",
        "XX000": "an error inside of Postgres or of a function",
    }
)
"""
SQLSTATEs, or how they begin, for which the given values may be at fault, with the reason.

The same values would meet the same error, however often they came. A statement of ours that meets
one is not repeated for ever. So is a SQLSTATE that is none of Postgres's: a trigger or a function
has raised it with an ERRCODE of its own.
"""

# The classes of appendix A of Postgres's manual.
_CLASS = re.compile("0[0-389ABFLPZ]|10|2[0-8BDF]|3[489BDF]|4[024]|5[3-578]|72|F0|HV|P0|XX")
_TIMED_OUT = frozenset({"57014", "25P04"})

# A prepared statement is not there, or is there already.
_SWAPPED = frozenset({"26000", "42P05"})

# libpq's PQTRANS_INERROR.
_ABORTED = 3

# The classes of the Python DB API for a connection that failed; such an error has no SQLSTATE.
_OF_CONNECTIONS = frozenset({"OperationalError", "InterfaceError"})


def is_away(sqlstate: str) -> bool:
    """Return whether this SQLSTATE says that the server is away."""
    return sqlstate.startswith(tuple(AWAY))


def is_at_fault(error: BaseException) -> bool:
    """Return whether the values that a statement was given may be at fault for an error."""
    state = sqlstate_of(error)
    if state is None:
        # The driver itself refused them: text with NUL, or a number that is too large.
        return "DataError" in {each.__name__ for each in type(error).__mro__}
    return state.startswith(tuple(AT_FAULT)) or not _CLASS.match(state)


def is_timed_out(error: BaseException) -> bool:
    """Return whether a statement ran into a timeout of its role, or was cancelled."""
    return any(sqlstate_of(each) in _TIMED_OUT for each in causes(error))


def is_blameless(sqlstate: str) -> bool:
    """Return whether the same statement may succeed later, for all that this SQLSTATE says."""
    return is_away(sqlstate) or sqlstate in COLLISIONS


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those for which it was raised, the outermost first."""
    todo, known = [error], set[int]()
    while todo:
        each = todo.pop()
        if isinstance(each, BaseException) and id(each) not in known:
            known.add(id(each))
            yield each
            # SQLAlchemy has the driver's own error as `orig`, and Django as its cause.
            before = None if each.__suppress_context__ else each.__context__
            todo += [before, each.__cause__, getattr(each, "orig", None)]


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE that a driver's error carries."""
    # psycopg and asyncpg, and psycopg2.
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found if isinstance(found, str) else None


def says_away(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, says that the server is away."""
    return any(
        _is_of_a_connection(each) if (state := sqlstate_of(each)) is None else is_away(state)
        for each in causes(error)
    )


def is_swapped(error: BaseException) -> bool:
    """Return whether a pooler gave a session with prepared statements to somebody else."""
    return any(sqlstate_of(each) in _SWAPPED for each in causes(error))


def is_outage(error: BaseException) -> bool:
    """
    Return whether a statement of our own failed because the server is away, or ended it.

    Such statements are at fault in nothing, so their timeouts and cancellations are outages, too.
    """
    return _is_of_a_connection(error) or says_away(error)


def over(line: object, error: BaseException) -> list[BaseException]:
    """
    Return which of an error and its causes psycopg raised on this connection, or its cursors.

    `line` is the connection's `pgconn`. The state of a transaction does not show such an error: a
    savepoint may have repaired it since.
    """
    return [each for each in causes(error) if _came_over(line, each)]


def is_lost(line: object) -> bool:
    """Return whether a connection is broken, or was closed."""
    return bool(getattr(line, "status", 0))  # libpq's OK is 0


def is_aborted(line: object) -> bool:
    """Return whether an error has aborted the connection's transaction."""
    return getattr(line, "transaction_status", 0) == _ABORTED


def _is_of_a_connection(error: BaseException) -> bool:
    return not _OF_CONNECTIONS.isdisjoint(each.__name__ for each in type(error).__mro__)


def _came_over(line: object, error: BaseException) -> bool:
    return any(
        str(frame.f_globals.get("__name__", "")).startswith("psycopg")
        and _is_on(line, frame.f_locals.get("self"))
        for frame, _ in walk_tb(error.__traceback__)
    )


def _is_on(line: object, user: object) -> bool:
    found = getattr(user, "pgconn", None) or getattr(
        getattr(user, "connection", None), "pgconn", None
    )
    return found is line
