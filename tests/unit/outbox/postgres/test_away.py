"""A SQLSTATE decides whether Postgres is away, whichever library wraps the driver's error."""

import pytest
from django.db.utils import OperationalError as DjangoError
from psycopg import DatabaseError, InterfaceError, OperationalError, errors
from sqlalchemy.exc import DBAPIError

from outbox.postgres.away import (
    AWAY,
    COLLISIONS,
    causes,
    is_at_fault,
    is_away,
    is_blameless,
    is_outage,
    says_away,
)

_AWAY = (
    *("08000", "08006", "08P01", "25006", "53100", "53200", "53300"),
    *("57P01", "57P02", "57P03", "57P04", "57P05", "58000", "58030"),
)
_AT_FAULT = (
    *("22021", "23505", "25P02", "25P03", "42501", "42P01", "53400"),
    *("54000", "55000", "57014", "P0001", "XX000", "TAKEN"),
)


@pytest.mark.parametrize("sqlstate", _AWAY)
def test_a_server_that_cannot_work_is_away(sqlstate: str) -> None:
    assert is_away(sqlstate)


@pytest.mark.parametrize("sqlstate", _AT_FAULT)
def test_a_statement_that_may_be_at_fault_is_no_outage(sqlstate: str) -> None:
    assert not is_blameless(sqlstate)


def test_another_transaction_that_came_first_is_not_away_and_blames_nobody() -> None:
    for sqlstate in COLLISIONS:
        assert is_blameless(sqlstate)
        assert not is_away(sqlstate)


def test_each_reason_is_written_down() -> None:
    assert all(AWAY.values())
    assert all(COLLISIONS.values())


class AsyncpgError(Exception):
    sqlstate = "57P01"


class Psycopg2Error(Exception):
    pgcode = "25006"


def _raised(cause: Exception, *, wrapped: bool) -> Exception:
    raised = DjangoError() if wrapped else LookupError()
    raised.__cause__ = cause if wrapped else None
    raised.__context__ = cause
    raised.__suppress_context__ = wrapped
    return raised


def test_wrapped_errors_say_the_same() -> None:
    gone = errors.ReadOnlySqlTransaction("no")
    wrapped: list[Exception] = [
        gone,
        DBAPIError("SELECT 1", {}, gone),
        _raised(gone, wrapped=True),
        _raised(gone, wrapped=False),
        DBAPIError("SELECT 1", {}, AsyncpgError()),
        Psycopg2Error(),
        OperationalError("the connection is lost"),
        InterfaceError("the connection is closed"),
    ]
    for error in wrapped:
        assert says_away(error), error
        assert is_outage(error), error
    assert not says_away(errors.QueryCanceled("timeout"))
    assert is_outage(errors.QueryCanceled("timeout"))
    assert not is_outage(errors.UniqueViolation("twice"))
    assert not is_outage(errors.InsufficientPrivilege("no"))


def test_a_code_that_is_none_of_postgres_came_from_a_trigger_or_a_function() -> None:
    for state in ("P0001", "U0001", "45000", "99ABC", "APP01"):
        assert is_at_fault(_with(state)), state
    named = {each.sqlstate for each in vars(errors).values() if getattr(each, "sqlstate", None)}
    assert len(named) > 200
    blamed = {state[:2] for state in named if is_at_fault(_with(state))}
    assert blamed == {"21", "22", "23", "44", "54", "P0", "XX"}


def _with(state: str) -> Exception:
    error = DatabaseError("raised")
    error.sqlstate = state
    return error


def test_causes_that_go_round_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert list(causes(one)) == [one, other]
    one.__cause__, one.__context__ = None, other  # as `raise one from None` has it
    one.__suppress_context__ = True
    assert list(causes(one)) == [one]
